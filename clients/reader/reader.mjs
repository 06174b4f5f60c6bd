// A reader of video's events, by the rules of docs/events.md. It is the model for a reader in another language.
//
// It keeps its rows in memory, and so begins with all rows of the owner. A reader with a database locks the row,
// decides, writes the row with all effects in one transaction, and acknowledges after the commit.
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { PubSub } from "@google-cloud/pubsub";
import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import protobuf from "protobufjs";
import { applied, decide, ownedRow, settles, time, unknown } from "./rules.mjs";

const { PROTO_DIR, OWNER_ADDR, GOOGLE_CLOUD_PROJECT, SUBSCRIPTION } = process.env;
const rows = new Map();

// The owner's calls for readers. On Google Cloud the connection has TLS, and each call the reader's ID token.
const definitions = loadSync("video/replication/v1/replication_service.proto", {
  includeDirs: [PROTO_DIR], keepCase: true, longs: Number, defaults: true,
});
const { ReplicationService } = grpc.loadPackageDefinition(definitions).video.replication.v1;
const owner = new ReplicationService(OWNER_ADDR, grpc.credentials.createInsecure());

const root = new protobuf.Root();
root.resolvePath = (_, name) => path.join(PROTO_DIR, name);
const Event = root.loadSync("video/events/v1/events.proto", { keepCase: true }).lookupType("video.events.v1.Event");

const pubsub = new PubSub({ projectId: GOOGLE_CLOUD_PROJECT }); // finds PUBSUB_EMULATOR_HOST
const subscription = pubsub.subscription(SUBSCRIPTION);
const deadLetters = pubsub.topic(`${SUBSCRIPTION}.dlq`, { messageOrdering: true });

// ask repeats a call until the owner answers: no outage and no missing right makes a dead letter. Only a request that
// the owner can never take is an error. Meanwhile the client extends the leases of the messages.
async function ask(method, request) {
  for (let tries = 0; ; tries++) {
    try {
      return await new Promise((resolve, reject) => {
        owner[method](request, { deadline: Date.now() + 30_000 }, (err, answer) => (err ? reject(err) : resolve(answer)));
      });
    } catch (err) {
      if (err.code === grpc.status.INVALID_ARGUMENT) throw err;
      console.error(`${method}: ${err.message}`);
      await backOff(tries);
    }
  }
}

// backOff waits for half a second at first, and for up to ten. The random part spreads the calls of many readers.
function backOff(tries) {
  return pause(Math.min(500 * 2 ** tries, 10_000) * (0.5 + Math.random() / 2));
}

// fill takes the rows from before the subscription. No event brings them.
async function fill() {
  for (let from = ""; ; ) {
    const page = await ask("ListVideoRows", { from });
    for (const m of page.videos) rows.set(m.video_id, ownedRow(m));
    if (!page.next) return;
    from = page.next;
  }
}

const kinds = { VideoCreated: "created", VideoUpdated: "updated", VideoDeleted: "deleted", Skipped: "skipped" };

// decode reads a message, or throws an error that no further try can avoid.
function decode({ data, attributes: a, orderingKey }) {
  const e = { ...a, kind: kinds[a.event_type], tenant: a.tenant_id || "default", epoch: Number(a.epoch ?? 1), version: Number(a.version) };
  const known = a.aggregate_type === "video" && a.schema_version === "1" && a.event_id && a.event_type && a.aggregate_id;
  if (!known || !(e.epoch >= 1) || !(e.version >= 1)) throw new Error("attributes: not those of an event that this reader knows");
  if (orderingKey && orderingKey !== a.aggregate_id) throw new Error("ordering key: not the aggregate_id");
  const [seconds, fraction = ""] = a.occurred_at.slice(0, -1).split(".");
  e.at = `${seconds}.${fraction.padEnd(6, "0").slice(0, 6)}Z`; // as time writes it
  if (e.kind === "skipped") return e;
  const envelope = Event.toObject(Event.decode(data), { longs: Number, oneofs: true });
  if (envelope.event_id !== e.event_id || envelope.aggregate_id !== e.aggregate_id || envelope.version !== e.version) {
    throw new Error("payload: of another event than its attributes");
  }
  if (!e.kind && !envelope.additive) throw new Error(`event_type: ${a.event_type} is unknown`);
  if (e.kind && envelope.payload !== e.kind) throw new Error("payload: of another type than event_type");
  return { ...e, kind: e.kind ?? "updated", payload: envelope[envelope.payload] ?? {} };
}

// repair takes the owner's row, which has the event, or shows that the owner lost it.
async function repair(e) {
  for (let tries = 0; ; tries++) {
    const answer = await ask("GetVideoRows", { video_ids: [e.aggregate_id] });
    const owned = answer.videos.length > 0 ? ownedRow(answer.videos[0]) : unknown;
    if (settles(owned, time(answer.as_of), rows.get(e.aggregate_id) ?? unknown, e)) {
      if (owned.version === 0) throw new Error("aggregate_id: the owner does not know it");
      return rows.set(e.aggregate_id, owned);
    }
    await backOff(tries);
  }
}

async function handle(message) {
  let outcome;
  try {
    const e = decode(message);
    const row = rows.get(e.aggregate_id) ?? unknown;
    outcome = decide(row, e);
    if (outcome === "applied") rows.set(e.aggregate_id, applied(row, e));
    else if (outcome !== "stale") await repair(e);
  } catch (err) {
    outcome = "dead";
    const attributes = Object.fromEntries(Object.entries(message.attributes).filter(([name]) => !name.startsWith("goog")));
    attributes.dead_letter_reason = err.message.slice(0, 250);
    await deadLetters.publishMessage({ data: message.data, attributes, orderingKey: message.orderingKey });
  }
  message.ack(); // last: a reader that dies before this line gets the message again
  const { aggregate_id: id, version } = message.attributes;
  console.log(JSON.stringify({ outcome, id, event: Number(version), row: rows.get(id)?.version ?? 0 }));
}

// A video's messages take turns, because a repair waits. The messages of other videos go on meanwhile.
const tails = new Map();
function receive(message) {
  const key = message.attributes.aggregate_id;
  const tail = (tails.get(key) ?? Promise.resolve()).then(() => handle(message));
  tails.set(key, tail);
  tail.then(() => tails.get(key) === tail && tails.delete(key));
}

await fill();
console.log(JSON.stringify({ outcome: "filled", rows: rows.size }));
subscription.on("message", receive);
subscription.on("error", (err) => { throw err; });
process.once("SIGTERM", async () => {
  await subscription.close();
  await Promise.all(tails.values());
  console.log(JSON.stringify({ outcome: "end", rows: Object.fromEntries(rows) }));
  owner.close();
  await pubsub.close();
});
