// The rules of docs/events.md as functions without effects. A row is the reader's copy of one video.

// What a reader knows about a video of which it has no row.
export const unknown = { epoch: 0, version: 0 };

const blank = { uploader_id: "", title: "", description: "", duration_seconds: 0, published_at: null };

const newer = (a, b) => a.epoch > b.epoch || (a.epoch === b.epoch && a.version > b.version);
const follows = (a, b) => a.epoch === b.epoch && a.version === b.version + 1;
const differ = (a, b) => Boolean(a && b && a !== b); // an unknown value contradicts nothing

// decide says what an event is to a row: applied, stale, a gap, or of another history.
export function decide(row, e) {
  if (contradicts(row, e)) return "diverged";
  if (!newer(e, row)) return "stale";
  switch (e.kind) {
    case "created":
      return row.version === 0 && e.version === 1 ? "applied" : "gap";
    case "updated":
      return row.version > 0 && !row.deleted && follows(e, row) ? "applied" : "gap";
    case "deleted":
      return "applied";
    default: // an event that its owner gave up
      return "gap";
  }
}

// contradicts says whether the owner lost the history of the row, or that of the event.
function contradicts(row, e) {
  if (differ(row.tenant, e.tenant)) return true;
  if (row.epoch !== e.epoch) return false;
  if (row.version === e.version) return row.event_id ? row.event_id !== e.event_id : row.at !== e.at;
  if (row.version > e.version) return e.at > row.at;
  if (follows(e, row) && row.event_id && e.previous_event_id) return row.event_id !== e.previous_event_id;
  return e.at < row.at;
}

// settles says whether the owner's answer decides about an event that does not fit the row. If not, the owner
// has to be asked again: the answer may come from a replica that lags, or from a former primary.
export function settles(owned, asOf, row, e) {
  if (owned.version > 0 && owned.epoch < Math.max(row.epoch, e.epoch)) return false;
  if (Date.parse(asOf) > Math.max(Date.parse(e.at), Date.parse(row.at ?? e.at)) + 30_000) return true; // what it lacks is lost
  const before = owned.epoch === row.epoch && owned.at < row.at; // perhaps a state from before the row
  return owned.version > 0 && !newer(e, owned) && !contradicts(owned, e) && !before;
}

// applied is the row after an event.
export function applied(row, { kind, payload, epoch, version, event_id, at, tenant }) {
  const position = { epoch, version, event_id, at, tenant };
  if (kind === "deleted") return { deleted: true, ...position };
  const cleared = (payload.cleared ?? []).filter((name) => name in blank).map((name) => [name, blank[name]]);
  return { ...(kind === "created" ? blank : row), ...Object.fromEntries(cleared), ...fields(payload), ...position };
}

// ownedRow is the owner's row as a row of this reader.
export function ownedRow(m) {
  const position = { epoch: m.epoch, version: m.version, event_id: m.last_event_id, at: time(m.updated_at), tenant: m.tenant_id };
  return m.deleted_at ? { deleted: true, ...position } : { ...blank, ...fields(m), ...position };
}

function fields(m) {
  const set = Object.keys(blank).filter((name) => m[name] !== undefined && m[name] !== null);
  return Object.fromEntries(set.map((name) => [name, name === "published_at" ? time(m[name]) : m[name]]));
}

// time is a protobuf Timestamp as text with microseconds, so that two of them compare as texts do.
export function time(t) {
  if (!t) return undefined;
  const micros = String(Math.trunc((t.nanos ?? 0) / 1000)).padStart(6, "0");
  return `${new Date((t.seconds ?? 0) * 1000).toISOString().slice(0, 19)}.${micros}Z`;
}
