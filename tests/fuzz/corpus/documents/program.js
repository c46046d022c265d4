/** A tree. */
class Tree {
  walk(visit) { for (const each of this.children) { each.walk(visit); } }
}
export const grow = async (tree) => `${tree} grows`;
