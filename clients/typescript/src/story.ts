// The calls of the README, from TypeScript: a user creates a video, changes it, reads the change
// from catalog with the token of the write, likes the video, and deletes it.
import { strict as assert } from "node:assert";
import { randomUUID } from "node:crypto";
import { connect, must, Refused } from "./client.js";

function variable(name: string): string {
  const value = process.env[name];
  if (!value) {
    throw new Error(`${name} is not set`);
  }
  return value;
}

const user = variable("USER_ID");
const token = variable("TOKEN");
const { video, catalog } = connect({
  videoURL: process.env["VIDEO_URL"] ?? "http://localhost:8080",
  catalogURL: process.env["CATALOG_URL"] ?? "http://localhost:8081",
  token: () => token,
});

const created = must(
  await video.POST("/v1/videos", {
    params: { header: { "Idempotency-Key": randomUUID() } },
    body: { uploader_id: user, title: "Lockstep in one minute", duration_seconds: 60 },
  }),
);
assert.equal(created.version, 1);
const id = created.video_id;

const updated = must(
  await video.PATCH("/v1/videos/{id}", {
    params: { path: { id }, header: { "If-Match": '"1"' } },
    body: { title: "Lockstep in two minutes", duration_seconds: 120 },
  }),
);

const fresh = must(
  await catalog.GET("/v1/videos/{id}", {
    params: { path: { id }, header: { "Consistency-Token": updated.consistency_token, Prefer: "wait=5" } },
  }),
);
assert.equal(fresh.title, "Lockstep in two minutes");
assert.ok(fresh.version >= 2);

const liked = must(
  await video.PUT("/v1/users/{user_id}/engagements/{video_id}", {
    params: { path: { user_id: user, video_id: id } },
    body: { liked: true },
  }),
);
const likes = must(
  await catalog.GET("/v1/users/{user_id}/engagements", {
    params: { path: { user_id: user }, header: { "Consistency-Token": liked.consistency_token, Prefer: "wait=5" } },
  }),
);
assert.ok(likes.engagements.some((like) => like.video_id === id && like.liked));

const deleted = must(await video.DELETE("/v1/videos/{id}", { params: { path: { id } } }));
const gone = await catalog.GET("/v1/videos/{id}", {
  params: { path: { id }, header: { "Consistency-Token": deleted.consistency_token, Prefer: "wait=5" } },
});
assert.equal(gone.response.status, 410);
assert.throws(() => must(gone), (error) => error instanceof Refused && error.problem.reason === "VIDEO_DELETED");

console.log(JSON.stringify({ video_id: id, versions: [created.version, updated.version, deleted.version], source: fresh.source }));
