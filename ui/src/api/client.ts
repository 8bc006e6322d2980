// Requests to the API, as typed answers; refusals as `Refused`. The only place that sends the token.
import { signal } from "@preact/signals";
import { ROOT } from "../root";
import type { Me, ProblemDetails, SessionView } from "./types.gen";

export type Query = Record<string, string | number | boolean | string[] | undefined>;

/** An answer that is no success: `details` says what is wrong, in which field, and what to do. */
export class Refused extends Error {
  constructor(readonly status: number, readonly details: ProblemDetails) {
    super(details.title);
  }
}

/** The token of this tab's session; `live.ts` alone sets it, with whose it is. */
export const token = signal("");
export const me = signal<Me | null>(null);
/** Whether the viewer may submit jobs anywhere. */
export const maySubmit = () => !!me.value && me.value.level !== "read" && (me.value.submits.length > 0 || me.value.role === "admin");
/** Whether the viewer may declare: an administrator with a token of full rights. */
export const administers = () => me.value?.role === "admin" && me.value.level === "admin";
/** Whether the server answered last time. */
export const reachable = signal(true);
/** Called when a token is refused. */
let onSignedOut: () => void = () => {};
let wroteMs = 0;

export function whenSignedOut(call: () => void): void {
  onSignedOut = call;
}

export function apiUrl(path: string, query: Query = {}): URL {
  const url = new URL(`api/v1${path}`, ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const one of value) url.searchParams.append(name, one);
    else if (value !== undefined && value !== "" && value !== false) url.searchParams.set(name, String(value));
  }
  return url;
}

type Sent = { query?: Query; body?: unknown; signal?: AbortSignal; headers?: Record<string, string>; key?: boolean };

/** Send a request and return the response; throws `Refused`, or a TypeError where no server answers. */
export async function send(method: string, path: string, sent: Sent = {}): Promise<Response> {
  const headers: Record<string, string> = { ...sent.headers };
  if (token.value) headers.Authorization ??= `Bearer ${token.value}`;
  if (sent.body !== undefined) headers["Content-Type"] = "application/json";
  if (sent.key) headers["Idempotency-Key"] = crypto.randomUUID();
  const body = sent.body === undefined ? undefined : JSON.stringify(sent.body);
  let response: Response;
  try {
    response = await fetch(apiUrl(path, sent.query), { method, headers, body, signal: sent.signal, cache: "no-store" });
  } catch (error) {
    if (!sent.signal?.aborted) reachable.value = false;
    throw error;
  }
  reachable.value = true;
  if (method !== "GET") wroteMs = Date.now();
  if (response.ok) return response;
  const details = await problemOf(response);
  if (response.status === 401 && headers.Authorization === `Bearer ${token.value}`) onSignedOut(); // not of a former session
  throw new Refused(response.status, details);
}

/** When this page last changed something (ms): what is asked for right after it must show that. */
export function lastWriteMs(): number {
  return wroteMs;
}

async function problemOf(response: Response): Promise<ProblemDetails> {
  try {
    return (await response.json()) as ProblemDetails;
  } catch {
    return { type: "", title: `HTTP ${response.status}`, status: response.status, code: "unknown", detail: "", hint: "", problems: [], leader: "" } as unknown as ProblemDetails;
  }
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await (await send("GET", path, { query, signal })).json()) as T;
}

/** Ask for an answer that may be up to `maxStaleS` old; return its age (s), too, and whether something may have changed since. */
export async function getKept<T>(path: string, query: Query, maxStaleS: number, signal?: AbortSignal): Promise<{ value: T; ageS: number; stale: boolean }> {
  const headers: Record<string, string> = maxStaleS ? { "Cache-Control": `max-stale=${maxStaleS}` } : {};
  const response = await send("GET", path, { query, signal, headers });
  const age = response.headers.get("Age");
  return { value: (await response.json()) as T, ageS: Number(age ?? 0), stale: age !== null };
}

/** Send a change, safe to send again: each has a key of its own. */
export async function post<T>(path: string, body?: unknown, query: Query = {}): Promise<T> {
  return (await (await send("POST", path, { body, query, key: true })).json()) as T;
}

/** Say whose session the code of a one-time link would begin; the code stays unused. */
export async function userOf(code: string): Promise<string> {
  return ((await (await send("POST", "/logins", { body: { code, dry_run: true } })).json()) as SessionView).user;
}

/** Begin a session by the code of a one-time link. */
export async function logIn(code: string): Promise<SessionView> {
  return (await (await send("POST", "/logins", { body: { code } })).json()) as SessionView;
}

/** Exchange a token that the viewer typed for a session, so that no page keeps the token itself. */
export async function logInWith(given: string): Promise<SessionView> {
  return (await (await send("POST", "/sessions", { headers: { Authorization: `Bearer ${given}` } })).json()) as SessionView;
}
