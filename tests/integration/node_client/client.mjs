// A client of MemoTree in JavaScript that has nothing but the folder proto/: a session, two nodes, a search, a commit,
// and errors with their details. Usage: node client.mjs ADDRESS PROTO_FOLDER; prints what it saw as JSON.
import path from "node:path";
import { readdirSync } from "node:fs";
import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const [address, protoFolder] = process.argv.slice(2);
const files = readdirSync(path.join(protoFolder, "memotree", "v1")).map((name) => path.join("memotree", "v1", name));
const definition = protoLoader.loadSync(files, {
  includeDirs: [protoFolder],
  keepCase: true,
  enums: String,
  longs: String,
  defaults: true,
  oneofs: true,
});
const api = grpc.loadPackageDefinition(definition).memotree.v1;

function connect(Service) {
  const stub = new Service(address, grpc.credentials.createInsecure());
  const methods = Object.keys(Service.service);
  const call = (name) => (request) =>
    promisify(stub[name]).call(stub, request, new grpc.Metadata(), { deadline: Date.now() + 30_000 });
  return { close: () => stub.close(), ...Object.fromEntries(methods.map((name) => [name, call(name)])) };
}

const workspaces = connect(api.WorkspaceService);
const sessions = connect(api.SessionService);
const nodes = connect(api.NodeService);
const workspace = "node-client";

const made = await workspaces.CreateWorkspace({ name: workspace, description: "From JavaScript" });
const { session } = await sessions.OpenSession({ workspace, agent: "a-node-program" });
const inSession = { workspace, session_id: session.id };
await workspaces.CreateArchive({ ...inSession, name: "notes" });
const { node: parent } = await nodes.CreateNode({
  ...inSession,
  archive_id: "notes",
  title: "Orchards",
  content: "Apples and pears grow in orchards.",
});
const { node: child } = await nodes.CreateNode({
  ...inSession,
  parent_id: parent.id,
  title: "Quinces",
  content: "A quince is hard and fragrant; 榅桲 is its Chinese name.",
  tags: ["fruit"],
  attributes: { colour: "yellow" },
});
const staged = await nodes.SearchNodes({ workspace, revision: session.id, query: "fragrant", search_type: "SEARCH_TYPE_HYBRID" });
const commit = await sessions.CommitChanges({
  ...inSession,
  message: "Plant an orchard",
  create_tag: true,
  tag_name: "v1",
  request_id: "from-node-1",
});
const again = await sessions.CommitChanges({
  ...inSession,
  message: "Plant an orchard",
  create_tag: true,
  tag_name: "v1",
  request_id: "from-node-1",
});
const found = await nodes.SearchNodes({ workspace, query: "榅桲" });
const read = await nodes.GetNode({ workspace, node_id: child.id, revision: "v1" });
const error = await nodes.GetNode({ workspace, node_id: "0000000000000000" }).catch((failure) => failure);

for (const service of [workspaces, sessions, nodes]) service.close();

console.log(
  JSON.stringify({
    repository: made.workspace.repository,
    parent: parent.id,
    child: child.id,
    staged: staged.hits.map((hit) => hit.node.id),
    commit,
    again,
    found: found.hits.map((hit) => ({ id: hit.node.id, preview: hit.preview, score: hit.score })),
    read: read.node,
    error: { code: error.code, details: error.details, trailers: Object.keys(error.metadata.getMap()) },
  }),
);
