// The stream of changes, as pages see it: what is shown is named by topics, and changes come as they are. And the session
// of this tab: no tab takes one of another user from elsewhere, else a link would turn open tabs into those of its maker.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { setClock } from "../format";
import { ROOT } from "../root";
import { get, me, send, token } from "./client";
import type { Changes, Counts, Me, SessionView } from "./types.gen";

export type Topic = "jobs" | "nodes" | "counts";
export type Live = Partial<Changes> & { counts?: Counts };
/** A session as tabs keep it and pass it on: its token never goes without its user. */
export type Session = Pick<SessionView, "token" | "user" | "expires_ms">;
type OfUser =
  | { kind: "up"; anew: boolean }
  | { kind: "down" }
  | { kind: "signed-out" }
  | { kind: "session"; session: Session }
  | { kind: "changes"; changes: Live };
type FromWorker = { kind: "sessions"; sessions: Session[] } | (OfUser & { user: string });

/** Whether the stream is open. */
export const streaming = signal(false);
/** Sums of the cluster and of the jobs that are seen; null until they have come. */
export const counts = signal<Counts | null>(null);
const listeners = new Set<{ topics: Topic[]; call: (changes: Live) => void }>();
const KEPT = "penstock.session";
const ALIVE_MS = 15_000;
const POLL_MS = 10_000;
const RENEW_BEFORE_MS = 6 * 3_600_000;
let port: MessagePort | null = null;
let mine: Session | null = null;
let onEnded: () => void = () => {};
let onSessions: (of: Session[]) => void = () => {};

export function whenSessionEnds(call: () => void): void {
  onEnded = call;
}

/** Join the other pages of this browser; returns the session that this tab goes on with, null where it has to ask. */
export async function join(): Promise<Session | null> {
  if (typeof SharedWorker === "undefined") setInterval(poll, POLL_MS);
  else connect();
  const here = await sessions();
  const own = kept(sessionStorage) ?? kept(localStorage);
  if (own) return here.find((one) => one.user === own.user) ?? null;
  return here.length === 1 ? here[0]! : null;
}

function connect(): void {
  const url = new URL(`assets/${__WORKER__}`, ROOT).href;
  const policy = window.trustedTypes?.createPolicy("penstock", {
    createScriptURL: (wanted) => {
      if (wanted !== url) throw new TypeError("only the pages' own worker is loaded");
      return wanted;
    },
  });
  const worker = new SharedWorker((policy?.createScriptURL(url) ?? url) as string, { type: "module", name: "penstock" });
  port = worker.port;
  port.onmessage = (event: MessageEvent<FromWorker>) => received(event.data);
  worker.onerror = () => onSessions([]);
  port.start();
  setInterval(() => port?.postMessage({ kind: "alive" }), ALIVE_MS);
}

/** The sessions of this browser, one a user: of this tab, those that stay, and of other tabs. */
export async function sessions(): Promise<Session[]> {
  const others = new Promise<Session[]>((resolve) => {
    onSessions = resolve;
    if (!port) resolve([]);
    port?.postMessage({ kind: "hello", root: ROOT.href });
    setTimeout(() => resolve([]), 3_000);
  });
  const all = [kept(sessionStorage), kept(localStorage), ...(await others)].filter((one): one is Session => !!one?.token);
  const last = (user: string) => all.filter((one) => one.user === user).sort((one, other) => other.expires_ms - one.expires_ms)[0]!;
  return [...new Set(all.map((one) => one.user))].map(last);
}

function kept(storage: Storage): Session | null {
  try {
    return JSON.parse(storage.getItem(KEPT) ?? "null") as Session | null;
  } catch {
    return null; // of a former version
  }
}

function received(said: FromWorker): void {
  if (said.kind === "sessions") return onSessions(said.sessions);
  if (said.user !== mine?.user) return; // of the user who was signed in here before
  if (said.kind === "up") {
    streaming.value = true;
    if (said.anew) take({ jobs_anew: true, nodes_anew: true });
  }
  else if (said.kind === "down") streaming.value = false;
  else if (said.kind === "signed-out") onEnded();
  else if (said.kind === "changes") take(said.changes);
  else {
    hold(said.session, stays(mine.user));
    void signedIn().catch(() => undefined); // it may have other rights
  }
}

function take(changes: Live): void {
  streaming.value = true;
  if (changes.time_ms) setClock(changes.time_ms);
  if (changes.counts) counts.value = changes.counts;
  for (const listener of [...listeners]) listener.call(changes);
}

/** Without a shared worker: everything is asked for anew now and then. */
async function poll(): Promise<void> {
  if (!token.value || document.hidden || !listeners.size) return;
  counts.value = await get<Counts>("/counts").catch(() => counts.value);
  take({ jobs_anew: true, nodes_anew: true });
}

function hold(session: Session, stay: boolean): void {
  mine = { token: session.token, user: session.user, expires_ms: session.expires_ms };
  token.value = mine.token;
  // The token is in one place: signing out removes one that stays also for tabs that the browser has put to sleep.
  sessionStorage.setItem(KEPT, JSON.stringify(stay ? { ...mine, token: "" } : mine));
  if (stay) localStorage.setItem(KEPT, JSON.stringify(mine));
  else if (stays(mine.user)) localStorage.removeItem(KEPT);
}

/** Take up a session, in this tab and in others of its user. */
export function share(session: Session, stay: boolean): void {
  hold(session, stay);
  port?.postMessage({ kind: "session", session: mine });
  topics();
}

/** End the session of this tab, and of others of its user. */
export function forget(): void {
  me.value = null;
  counts.value = null;
  if (!mine) return;
  sessionStorage.removeItem(KEPT);
  if (stays(mine.user)) localStorage.removeItem(KEPT);
  mine = null;
  token.value = "";
  port?.postMessage({ kind: "signed-out" });
}

/** Learn who is signed in, and what the cluster has. */
export async function signedIn(): Promise<void> {
  const who = await get<Me>("/me");
  if (who.user !== mine?.user) return; // signed out meanwhile, or another user in
  me.value = who;
  const sums = await get<Counts>("/counts");
  if (who.user === mine?.user) counts.value = sums;
}

/** Renew the session when its end is near. */
export async function renew(): Promise<void> {
  if (!mine || mine.expires_ms - Date.now() > RENEW_BEFORE_MS) return;
  const session = (await (await send("POST", "/sessions")).json()) as SessionView;
  if (session.user === mine?.user) share(session, stays(mine.user));
}

/** Whether a session of this user outlives the browser's window. */
export function stays(user: string): boolean {
  return kept(localStorage)?.user === user;
}

function topics(): void {
  const wanted = new Set<Topic>(["counts"]);
  for (const listener of listeners) for (const topic of listener.topics) wanted.add(topic);
  port?.postMessage({ kind: "topics", topics: document.hidden ? [] : [...wanted] });
}

document.addEventListener("visibilitychange", () => {
  topics();
  if (!document.hidden) take({ jobs_anew: true, nodes_anew: true });
});

/** Follow topics while a component is shown. */
export function useChanges(wanted: Topic[], call: (changes: Live) => void): void {
  const latest = useRef(call);
  latest.current = call;
  useEffect(() => {
    const listener = { topics: wanted, call: (changes: Live) => latest.current(changes) };
    listeners.add(listener);
    topics();
    return () => {
      listeners.delete(listener);
      topics();
    };
  }, [wanted.join(",")]);
}
