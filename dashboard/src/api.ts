// The admin API, asked with the token that this tab was given.

/** Where the token is kept: for this tab, and gone with it. */
const KEPT_AS = "tollgate.token";

/** How long an answer may take. */
const PATIENCE_MS = 15_000;

/** What the API has against a request, in words. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly faults: { at: string; what: string }[] = [],
  ) {
    super(message);
  }

  /** Whether it asks who this is. */
  get isUnknown(): boolean {
    return this.status === 401;
  }
}

export class Api {
  /** Told when the API no longer knows who this is. */
  onUnknown: () => void = () => {};
  #token = sessionStorage.getItem(KEPT_AS);

  get token(): string | null {
    return this.#token;
  }

  set token(token: string | null) {
    this.#token = token;
    if (token === null) sessionStorage.removeItem(KEPT_AS);
    else sessionStorage.setItem(KEPT_AS, token);
  }

  async get<T>(path: string, query: Record<string, string | number | null | undefined> = {}): Promise<T> {
    return this.ask<T>("GET", withQuery(path, query));
  }

  async ask<T>(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
    const request: RequestInit = { method, headers: { ...this.#headers(), ...headers }, signal: AbortSignal.timeout(PATIENCE_MS) };
    if (body !== undefined) {
      request.body = JSON.stringify(body);
      request.headers = { ...request.headers, "Content-Type": "application/json" };
    }
    const response = await this.#fetch(path, request);
    return (await response.json()) as T;
  }

  /** An answer without end. */
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
      throw new Error(late ? "the server did not answer in time" : "the server can't be reached");
    }
    if (response.ok) return response;
    const refused = await told(response);
    if (refused.isUnknown) this.onUnknown();
    throw refused;
  }

  #headers(): Record<string, string> {
    return this.#token === null ? {} : { Authorization: `Bearer ${this.#token}` };
  }
}

/** What an answer says that is none. Not all of them are problem+json. */
async function told(response: Response): Promise<Refused> {
  const text = await response.text().catch(() => "");
  try {
    const { code, detail, title, faults } = JSON.parse(text);
    return new Refused(response.status, String(code ?? ""), String(detail ?? title ?? response.status), Array.isArray(faults) ? faults : []);
  } catch {
    return new Refused(response.status, "", text.trim().slice(0, 300) || `the server answered ${response.status}`);
  }
}

/** A path with what is not empty of a query. */
export function withQuery(path: string, query: Record<string, string | number | null | undefined>): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return pairs.length === 0 ? path : `${path}?${new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]))}`;
}

/** What went wrong, in words. */
export function inWords(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof Refused && error.faults.length > 1) {
    return `${error.message}: ${error.faults.map((fault) => `${fault.at}: ${fault.what}`).join("; ")}`;
  }
  return error.message;
}
