// Client of the admin API, with the token of this tab.

/** Session storage key of the token: it is gone when the tab is closed. */
const STORAGE_KEY = "tollgate.token";

/** Time limit of a request. */
const TIMEOUT_MS = 15_000;

/** An error response of the API. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly faults: { at: string; what: string }[] = [],
    /** The id of the plan as which a write was held. */
    readonly plan?: string,
  ) {
    super(message);
  }

  /** Whether authentication is missing or invalid. */
  get isUnauthenticated(): boolean {
    return this.status === 401;
  }
}

export class Api {
  /** Called when the API rejects the token. */
  onUnauthenticated: () => void = () => {};
  #token = sessionStorage.getItem(STORAGE_KEY);
  /** The write that was held last, and its plan. */
  #held: { write: string; plan: string } | undefined;

  get token(): string | null {
    return this.#token;
  }

  set token(token: string | null) {
    this.#token = token;
    if (token === null) sessionStorage.removeItem(STORAGE_KEY);
    else sessionStorage.setItem(STORAGE_KEY, token);
  }

  async get<T>(path: string, query: Record<string, string | number | null | undefined> = {}): Promise<T> {
    return this.request<T>("GET", withQuery(path, query));
  }

  /** Sends a request. A write that was held is confirmed by sending it again. */
  async request<T>(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
    const write = [method, path, JSON.stringify(body)].join(" ");
    if (this.#held?.write === write) headers = { ...headers, "Tollgate-Confirm": this.#held.plan };
    const options: RequestInit = { method, headers: { ...this.#headers(), ...headers }, signal: AbortSignal.timeout(TIMEOUT_MS) };
    if (body !== undefined) {
      options.body = JSON.stringify(body);
      options.headers = { ...options.headers, "Content-Type": "application/json" };
    }
    try {
      const response = await this.#fetch(path, options);
      if (method !== "GET") this.#held = undefined;
      return (await response.json()) as T;
    } catch (error) {
      if (method !== "GET") this.#held = error instanceof ApiError && error.plan ? { write, plan: error.plan } : undefined;
      throw error;
    }
  }

  /** An endless response. */
  async stream(path: string, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    const response = await this.#fetch(path, { headers: { ...this.#headers(), Accept: "text/event-stream" }, signal });
    if (!response.body) throw new Error("the server sent nothing");
    return response.body;
  }

  async #fetch(path: string, request: RequestInit): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(path, { ...request, cache: "no-store", credentials: "omit" });
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      const late = error instanceof DOMException && error.name === "TimeoutError";
      throw new Error(late ? "the server did not respond in time" : "the server can't be reached");
    }
    if (response.ok) return response;
    const failure = await toApiError(response);
    if (failure.isUnauthenticated) this.onUnauthenticated();
    throw failure;
  }

  #headers(): Record<string, string> {
    return this.#token === null ? {} : { Authorization: `Bearer ${this.#token}` };
  }
}

/** Parses an error response. Not all of them are problem+json. */
async function toApiError(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  try {
    const { code, detail, title, faults, plan } = JSON.parse(text);
    return new ApiError(response.status, String(code ?? ""), String(detail ?? title ?? response.status), Array.isArray(faults) ? faults : [], plan?.id);
  } catch {
    return new ApiError(response.status, "", text.trim().slice(0, 300) || `the server responded with ${response.status}`);
  }
}

/** Appends the non-empty parameters of a query to a path. */
export function withQuery(path: string, query: Record<string, string | number | null | undefined>): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return pairs.length === 0 ? path : `${path}?${new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]))}`;
}

/** The message of an error, with all faults. */
export function errorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof ApiError && error.faults.length > 1) {
    return `${error.message}: ${error.faults.map((fault) => `${fault.at}: ${fault.what}`).join("; ")}`;
  }
  return error.message;
}
