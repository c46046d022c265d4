package main

// Walk visits a tree.
func Walk(t *Tree, visit func(int)) {
	if t != nil {
		Walk(t.Left, visit)
	}
}

type Tree struct{ Left, Right *Tree }
