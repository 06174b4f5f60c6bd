// The two services as typed clients. The types are generated from the OpenAPI documents by
// `make clients`: a path, parameter or field that a service does not have does not compile.
import createClient, { type Client as AnyClient, type FetchOptions, type FetchResponse, type Middleware, type ParseAs } from "openapi-fetch";
import type { components as CatalogComponents, paths as CatalogPaths } from "./catalog.js";
import type { components as VideoComponents, paths as VideoPaths } from "./video.js";

/** The addresses of a pair, and its caller. */
export interface Options {
  /** The base URL of video, such as http://localhost:8080. */
  videoURL: string;
  /** The base URL of catalog, such as http://localhost:8081. */
  catalogURL: string;
  /** Returns the user's bearer token. It is called for each request, so it may renew the token. */
  token: () => string | Promise<string>;
  /** The longest time of one request, in milliseconds; 30,000 if absent. */
  timeout?: number;
}

type Method = "get" | "put" | "post" | "patch" | "delete";

/** The paths that have the method. */
type Having<Paths, M extends Method> = { [P in keyof Paths]: Paths[P] extends Record<M, object> ? P : never }[keyof Paths];
type Operation<Item, M extends Method> = Item extends Record<M, infer O extends object> ? O : never;
type Arguments<Init> = {} extends Init ? [init?: Init] : [init: Init];

/**
 * The calls of one method. The type of init follows from the path alone, but for parseAs, of which the type of the data
 * depends. The types of openapi-fetch infer all of it from the argument, and so take a misspelt parameter or field next
 * to a right one.
 */
type Call<Paths, M extends Method> = <P extends Having<Paths, M>, As extends ParseAs = "json">(
  path: P,
  ...init: Arguments<FetchOptions<Operation<Paths[P], M>> & { parseAs?: As }>
) => Promise<FetchResponse<Operation<Paths[P], M>, { parseAs: As }, `${string}/${string}`>>;

/** A client of one service. */
type Client<Paths extends {}> = { [M in Method as Uppercase<M>]: Call<Paths, M> } & Pick<AnyClient<Paths>, "use" | "eject">;

/** Clients of both services, with the caller's token in each request. */
export interface Pair {
  video: Client<VideoPaths>;
  catalog: Client<CatalogPaths>;
}

const defaultTimeout = 30_000;

/** Returns clients of the pair. It sends no request. */
export function connect(options: Options): Pair {
  const caller: Middleware = {
    async onRequest({ request }) {
      request.headers.set("Authorization", `Bearer ${await options.token()}`);
      return request;
    },
  };
  const timeout = options.timeout ?? defaultTimeout;
  const bounded = (request: Request) =>
    fetch(request, { signal: AbortSignal.any([request.signal, AbortSignal.timeout(timeout)]) });
  const video = createClient<VideoPaths>({ baseUrl: options.videoURL, fetch: bounded });
  const catalog = createClient<CatalogPaths>({ baseUrl: options.catalogURL, fetch: bounded });
  video.use(caller);
  catalog.use(caller);
  return { video, catalog } as unknown as Pair; // the same clients, with narrower types
}

type CatalogProblems = CatalogComponents["schemas"];

/** A problem document of either service. What only some problems have is optional, such as the version. */
export type Problem = CatalogProblems["Problem"] &
  Partial<VideoComponents["schemas"]["Problem"] & CatalogProblems["Missing"] & CatalogProblems["Gone"]>;

/** An answer that is not a success, as the service described it. */
export class Refused extends Error {
  readonly problem: Problem;
  constructor(problem: Problem) {
    const trace = problem.trace_id === undefined ? "" : ` (trace ${problem.trace_id})`;
    super(`${problem.status} ${problem.reason}: ${problem.detail}${trace}`);
    this.problem = problem;
  }
}

/** Returns the data of a success, and throws Refused otherwise. */
export function must<T>(answer: { data?: T; error?: unknown; response: Response }): T {
  if (answer.data !== undefined) {
    return answer.data;
  }
  const problem = answer.error as Problem | undefined;
  if (problem?.reason === undefined) {
    throw new Error(`${answer.response.status} from ${answer.response.url}, without a description`);
  }
  throw new Refused(problem);
}
