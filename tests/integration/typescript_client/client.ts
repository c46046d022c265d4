// A client of MemoTree in TypeScript with code generated from the folder proto/: a session, nodes, a conflict with its
// typed values, and a list in pages. Usage: node dist/client.js ADDRESS; prints what it saw as JSON.
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { NodeService } from "./gen/memotree/v1/node_service_pb.js";
import { SessionService } from "./gen/memotree/v1/session_service_pb.js";
import { Absence, ConflictListSchema, RelationType, type Conflict, type FieldValue } from "./gen/memotree/v1/types_pb.js";
import { WorkspaceService } from "./gen/memotree/v1/workspace_service_pb.js";

const address = process.argv[2];
if (address === undefined) throw new Error("Give the address of the server.");
const transport = createGrpcTransport({ baseUrl: `http://${address}`, defaultTimeoutMs: 30_000 });
const workspaces = createClient(WorkspaceService, transport);
const sessions = createClient(SessionService, transport);
const nodes = createClient(NodeService, transport);
const workspace = "typescript-client";

/** Opens a session; its fields are those that every change takes. */
async function open(agent: string): Promise<{ workspace: string; sessionId: string }> {
  const { session } = await sessions.openSession({ workspace, agent });
  if (session === undefined) throw new Error("A new session is missing.");
  return { workspace, sessionId: session.id };
}

/** Creates a root of the archive "notes"; its id. */
async function createNote(place: { workspace: string; sessionId: string }, title: string): Promise<string> {
  const { node } = await nodes.createNode({
    ...place,
    archiveId: "notes",
    title,
    content: `About ${title}.`,
    attributes: { colour: "green" },
  });
  if (node === undefined) throw new Error("A new node is missing.");
  return node.id;
}

/** A value as [its kind, what a program does with it]. The compiler refuses a kind that is left out. */
function told(value: FieldValue | undefined): [string, unknown] {
  const kind = value?.kind;
  switch (kind?.case) {
    case "text":
      return ["text", kind.value];
    case "absence":
      return ["absence", Absence[kind.value]];
    case "place":
      return ["place", [kind.value.archiveId, kind.value.parentId, kind.value.position !== ""]];
    case "relation":
      return ["relation", [RelationType[kind.value.type], kind.value.targetId, kind.value.description]];
    case "source":
      return ["source", [kind.value.documentId, Number(kind.value.start), Number(kind.value.end)]];
    case "node":
      return ["node", [kind.value.id, kind.value.title]];
    case "archive":
      return ["archive", [kind.value.id, kind.value.name]];
    case "childId":
      return ["childId", kind.value];
    case undefined:
      return ["unknown", null];
  }
}

/** The conflicts that end a call with ABORTED. */
async function conflictsOf(call: Promise<unknown>): Promise<Conflict[]> {
  try {
    await call;
  } catch (error) {
    const failure = ConnectError.from(error);
    if (failure.code !== Code.Aborted) throw failure;
    return failure.findDetails(ConflictListSchema).flatMap((list) => list.conflicts);
  }
  throw new Error("The call was not refused.");
}

/** Every root of the archive "notes", page by page. */
async function* titles(pageSize: number): AsyncGenerator<string[]> {
  let pageToken = "";
  do {
    const page = await nodes.listChildren({ workspace, archive: "notes", pageSize, pageToken });
    yield page.nodes.map((node) => node.title);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}

await workspaces.createWorkspace({ name: workspace, description: "From TypeScript" });
const first = await open("first");
const { archive } = await workspaces.createArchive({ ...first, name: "notes" });
const ids: string[] = [];
for (const title of ["Apples", "Pears", "Quinces", "Plums", "Medlars"]) ids.push(await createNote(first, title));
const [apples, pears, quinces, plums] = ids as [string, string, string, string];
await sessions.commitChanges({ ...first, message: "Plant an orchard" });

const mine = await open("mine");
const yours = await open("yours");
const about = (description: string) => ({ type: RelationType.ABOUT, targetId: apples, description });
await nodes.updateNode({ ...mine, nodeId: quinces, title: "Quince trees", attributes: { taste: "sour" } });
await nodes.moveNode({ ...mine, nodeId: quinces, parentId: apples });
await nodes.addRelation({ ...mine, nodeId: pears, relation: about("mine") });
await nodes.deleteNode({ ...mine, nodeId: plums });
await nodes.updateNode({ ...yours, nodeId: quinces, title: "Quince shrubs", attributes: { taste: "" } });
await nodes.moveNode({ ...yours, nodeId: quinces, parentId: pears });
await nodes.addRelation({ ...yours, nodeId: pears, relation: about("yours") });
await nodes.updateNode({ ...yours, nodeId: plums, title: "Damsons" });
await sessions.commitChanges({ ...yours, message: "First" });
const conflicts = await conflictsOf(sessions.commitChanges({ ...mine, message: "Second" }));

const pages: string[][] = [];
for await (const page of titles(2)) pages.push(page);

console.log(
  JSON.stringify({
    archive: archive?.id,
    ids: { apples, pears, quinces, plums },
    conflicts: conflicts.map((conflict) => ({
      node: conflict.nodeId,
      field: conflict.field,
      base: told(conflict.baseValue),
      ours: told(conflict.ourValue),
      theirs: told(conflict.theirValue),
    })),
    pages,
  }),
);
