// The stream of changes, as pages see it: what is shown is named by topics, and changes come as they are.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { setClock } from "../format";
import { ROOT } from "../root";
import { begin, get, me, token } from "./client";
import type { Changes, Counts, Me } from "./types.gen";

export type Topic = "jobs" | "nodes" | "counts";
export type Live = Partial<Changes> & { counts?: Counts };

/** Whether the stream is open. */
export const streaming = signal(false);
/** Sums of the cluster and of the jobs that are seen; null until they have come. */
export const counts = signal<Counts | null>(null);
const listeners = new Set<{ topics: Topic[]; call: (changes: Live) => void }>();
const KEPT = "penstock.session";
const ALIVE_MS = 15_000;
const POLL_MS = 10_000;
let port: MessagePort | null = null;
let onEnded: () => void = () => {};

export function whenSessionEnds(call: () => void): void {
  onEnded = call;
}

/** Join the other pages of this browser; returns the token of their session, '' where there is none. */
export async function join(): Promise<string> {
  const own = sessionStorage.getItem(KEPT) ?? localStorage.getItem(KEPT) ?? "";
  if (typeof SharedWorker === "undefined") {
    setInterval(poll, POLL_MS);
    return own;
  }
  const url = new URL(`assets/${__WORKER__}`, ROOT).href;
  const policy = window.trustedTypes?.createPolicy("penstock", {
    createScriptURL: (wanted) => {
      if (wanted !== url) throw new TypeError("only the pages' own worker is loaded");
      return wanted;
    },
  });
  const worker = new SharedWorker((policy?.createScriptURL(url) ?? url) as string, { type: "module", name: "penstock" });
  port = worker.port;
  const known = new Promise<string>((resolve) => {
    port!.onmessage = (event: MessageEvent) => {
      received(event.data);
      if (event.data.kind === "token") resolve(event.data.token);
    };
    worker.onerror = () => resolve(own);
    setTimeout(() => resolve(own), 3_000);
  });
  port.start();
  port.postMessage({ kind: "hello", token: own, root: ROOT.href });
  setInterval(() => port?.postMessage({ kind: "alive" }), ALIVE_MS);
  return known;
}

function received(said: { kind: string; token?: string; changes?: Live; anew?: boolean }): void {
  if (said.kind === "up") {
    streaming.value = true;
    if (said.anew) take({ jobs_anew: true, nodes_anew: true });
  }
  else if (said.kind === "down") streaming.value = false;
  else if (said.kind === "signed-out") onEnded();
  else if (said.kind === "token" && token.value && said.token !== token.value) {
    if (said.token) token.value = said.token;
    else onEnded();
  } else if (said.kind === "changes" && said.changes) take(said.changes);
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

/** Keep the token of a session that has begun, and give it to the other pages; '' forgets it. */
export function share(session: { token: string; expires_ms: number; user?: string } | null, stay = false): void {
  const text = session?.token ?? "";
  if (session) begin(session as never);
  else token.value = "";
  for (const storage of [sessionStorage, localStorage]) storage.removeItem(KEPT);
  if (text) (stay ? localStorage : sessionStorage).setItem(KEPT, text);
  port?.postMessage({ kind: "token", token: text });
  topics();
}

/** Learn who is signed in, and what the cluster has. */
export async function signedIn(): Promise<void> {
  me.value = await get<Me>("/me");
  counts.value = await get<Counts>("/counts");
}

/** Whether the session outlives the browser's window. */
export function stays(): boolean {
  return localStorage.getItem(KEPT) !== null;
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
