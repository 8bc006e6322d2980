// One stream of changes for all open pages of a user, and the user's session while any page is open.
//
// A browser opens six connections to one server: a stream for each tab would use them up, and the seventh would hang.
// Nothing of one user goes to a page of another: not the session, nor what the stream says.
/// <reference lib="webworker" />

type Topic = "jobs" | "nodes" | "counts";
type Session = { token: string; user: string; expires_ms: number };
type FromPage =
  | { kind: "hello"; root: string }
  | { kind: "session"; session: Session }
  | { kind: "topics"; topics: Topic[] }
  | { kind: "alive" | "signed-out" };

const RETRY_MS = [500, 1_000, 2_000, 5_000, 10_000];
const GONE_MS = 45_000;

/** `user` is empty while nobody is signed in there. */
type Page = { port: MessagePort; user: string; topics: Set<Topic>; seenMs: number };
type Stream = { session: Session; last: string; followed: Set<Topic>; current: AbortController | null; tries: number };
const pages = new Set<Page>();
/** By user. */
const streams = new Map<string, Stream>();
let root = "";

function pagesOf(user: string): Page[] {
  return [...pages].filter((page) => page.user === user);
}

function tell(stream: Stream, message: object, except?: Page): void {
  const { user } = stream.session;
  for (const page of pagesOf(user)) if (page !== except) page.port.postMessage({ ...message, user });
}

/** Follow what pages want: a topic more begins the stream anew, one less only when `shrink` says so. */
function follow(stream: Stream, shrink = false): void {
  const wants = new Set(pagesOf(stream.session.user).flatMap((page) => [...page.topics]));
  const topics = wants.size && !shrink ? new Set([...stream.followed, ...wants]) : wants;
  if (same(topics, stream.followed)) return;
  stream.current?.abort();
  Object.assign(stream, { followed: topics, last: "", tries: 0 });
  if (topics.size) void run(stream);
}

/** Take up a session: a stream has its token from its begin to its end. */
function begin(page: Page, session: Session): void {
  page.user = session.user;
  const former = streams.get(session.user);
  former?.current?.abort();
  const stream = { session, last: "", followed: new Set<Topic>(), current: null, tries: 0 };
  streams.set(session.user, stream);
  if (former?.session.token !== session.token) tell(stream, { kind: "session", session }, page);
}

function end(stream: Stream): void {
  stream.current?.abort();
  streams.delete(stream.session.user);
  tell(stream, { kind: "signed-out" });
  for (const page of pagesOf(stream.session.user)) page.user = ""; // what it answers ends no session that began since
}

function same(one: Set<Topic>, other: Set<Topic>): boolean {
  return one.size === other.size && [...one].every((topic) => other.has(topic));
}

async function run(stream: Stream): Promise<void> {
  const own = (stream.current = new AbortController());
  try {
    const url = new URL("api/v1/changes", root);
    url.searchParams.set("topics", [...stream.followed].sort().join(","));
    const headers: Record<string, string> = { Authorization: `Bearer ${stream.session.token}` };
    if (stream.last) headers["Last-Event-ID"] = stream.last;
    const answer = await fetch(url, { headers, signal: own.signal, cache: "no-store" });
    own.signal.throwIfAborted();
    if (answer.status === 401) return end(stream);
    if (!answer.ok || !answer.body) throw new Error(`HTTP ${answer.status}`);
    tell(stream, { kind: "up", anew: !stream.last });
    stream.tries = 0;
    await read(stream, answer.body, own.signal);
    throw new Error("the stream has ended");
  } catch {
    if (own.signal.aborted) return;
    tell(stream, { kind: "down" });
    const pause = RETRY_MS[Math.min(stream.tries, RETRY_MS.length - 1)]! * (0.5 + Math.random());
    stream.tries += 1;
    setTimeout(() => own.signal.aborted || void run(stream), pause);
  }
}

async function read(stream: Stream, body: ReadableStream<Uint8Array>, signal: AbortSignal): Promise<void> {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as TransformStream<Uint8Array, string>).getReader();
  let text = "";
  while (!signal.aborted) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    let end: number;
    while ((end = text.indexOf("\n\n")) >= 0) {
      message(stream, text.slice(0, end));
      text = text.slice(end + 2);
    }
  }
}

function message(stream: Stream, block: string): void {
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) stream.last = line.slice(4);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data) tell(stream, { kind: "changes", changes: JSON.parse(data) });
}

function joined(port: MessagePort): void {
  const page: Page = { port, user: "", topics: new Set(), seenMs: Date.now() };
  pages.add(page);
  port.onmessage = (event: MessageEvent<FromPage>) => {
    const said = event.data;
    page.seenMs = Date.now();
    if (!pages.has(page)) pages.add(page);
    if (said.kind === "hello") {
      root = said.root;
      port.postMessage({ kind: "sessions", sessions: [...streams.values()].map((stream) => stream.session) });
    } else if (said.kind === "session") begin(page, said.session);
    else if (said.kind === "topics") page.topics = new Set(said.topics);
    const stream = streams.get(page.user);
    if (stream && said.kind === "signed-out") end(stream);
    else if (stream) follow(stream);
    else if (page.user) {
      port.postMessage({ kind: "signed-out", user: page.user }); // it was silent, as hidden pages are, when its session ended
      page.user = "";
    }
  };
  port.start?.();
}

// Ports do not say that their page is gone.
setInterval(() => {
  for (const page of pages) if (Date.now() - page.seenMs > GONE_MS) pages.delete(page);
  for (const stream of streams.values()) follow(stream, true);
}, 15_000);

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => joined(event.ports[0]!);

export {};
