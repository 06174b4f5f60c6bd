// Mistakes that must not compile. tsc reports each line below that has no error any more. No function here runs.
import { connect, must, Refused } from "./client.js";

const id = "0190a5d0-0000-7000-8000-000000000001";
const { video, catalog } = connect({ videoURL: "", catalogURL: "", token: () => "" });

export async function paths(): Promise<void> {
  // @ts-expect-error: there is no such path
  await catalog.GET("/v1/video/{id}", { params: { path: { id } } });
  // @ts-expect-error: the path has other methods only
  await catalog.DELETE("/v1/videos/{id}", { params: { path: { id } } });
  // @ts-expect-error: the path's parameter is missing
  await catalog.GET("/v1/videos/{id}");
}

// A name that is wrong stands next to a name that is right.
export async function names(): Promise<void> {
  const path = { id };
  // @ts-expect-error: there is no such parameter of the path
  await catalog.GET("/v1/videos/{id}", { params: { path: { id, video_id: id } } });
  // @ts-expect-error: a list has this parameter
  await catalog.GET("/v1/videos/{id}", { params: { path, query: { consistency_token: "", page_size: 1 } } });
  // @ts-expect-error: a header of writes
  await catalog.GET("/v1/videos/{id}", { params: { path, header: { Prefer: "wait=1", "Idempotency-Key": "k" } } });
  // @ts-expect-error: there is no such field
  await video.PATCH("/v1/videos/{id}", { params: { path }, body: { title: "a", length: 1 } });
  // @ts-expect-error: the uploader never changes
  await video.PATCH("/v1/videos/{id}", { params: { path }, body: { title: "a", uploader_id: id } });
  // @ts-expect-error: the service gives the version
  await video.POST("/v1/videos", { body: { uploader_id: id, title: "a", version: 1 } });
}

export async function values(): Promise<void> {
  // @ts-expect-error: a title is required
  await video.POST("/v1/videos", { body: { uploader_id: id } });
  // @ts-expect-error: a title is never null
  await video.PATCH("/v1/videos/{id}", { params: { path: { id } }, body: { title: null } });
  const stored = must(await video.GET("/v1/videos/{id}", { params: { path: { id } } }));
  // @ts-expect-error: it is null before the video is published
  stored.published_at satisfies string;
}

// What a refusal says is reached without a cast.
export function said(error: unknown): [number | undefined, string | undefined] {
  return error instanceof Refused ? [error.problem.version, error.problem.deleted_at] : [undefined, undefined];
}

// The type of the data follows parseAs.
export async function unparsed(): Promise<string | undefined> {
  // @ts-expect-error: the data is text
  (await catalog.GET("/v1/videos", { parseAs: "text" })).data?.videos;
  return (await catalog.GET("/v1/videos", { parseAs: "text" })).data;
}
