#include <stdio.h>
struct tree { struct tree *left; };
static int depth(const struct tree *t) { return t ? 1 + depth(t->left) : 0; }
