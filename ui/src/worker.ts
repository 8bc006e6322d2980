// One stream of changes for all open pages, and the token of their session while any of them is open.
//
// A browser opens six connections to one server: a stream for each tab would use them up, and the seventh would hang.
/// <reference lib="webworker" />

type Topic = "jobs" | "nodes" | "counts";
type FromPage =
  | { kind: "hello"; token: string; root: string }
  | { kind: "token"; token: string }
  | { kind: "topics"; topics: Topic[] }
  | { kind: "alive" };

const RETRY_MS = [500, 1_000, 2_000, 5_000, 10_000];
const GONE_MS = 45_000;

type Page = { port: MessagePort; topics: Set<Topic>; seenMs: number };
const pages = new Set<Page>();
let token = "";
let root = "";
let last = "";
let followed = new Set<Topic>();
let current: AbortController | null = null;
let tries = 0;

function tell(message: unknown): void {
  for (const page of pages) page.port.postMessage(message);
}

function wanted(): Set<Topic> {
  const topics = new Set<Topic>();
  for (const page of pages) for (const topic of page.topics) topics.add(topic);
  return topics;
}

/** Follow what pages want: a topic more begins the stream anew, one less only when `shrink` says so. */
function follow(shrink = false): void {
  const wants = token ? wanted() : new Set<Topic>();
  const topics = wants.size && !shrink ? new Set([...followed, ...wants]) : wants;
  if (same(topics, followed)) return;
  current?.abort();
  followed = topics;
  last = "";
  tries = 0;
  if (topics.size) void run();
}

function same(one: Set<Topic>, other: Set<Topic>): boolean {
  return one.size === other.size && [...one].every((topic) => other.has(topic));
}

async function run(): Promise<void> {
  const own = (current = new AbortController());
  try {
    const url = new URL("api/v1/changes", root);
    url.searchParams.set("topics", [...followed].sort().join(","));
    const headers: Record<string, string> = { Authorization: `Bearer ${token}` };
    if (last) headers["Last-Event-ID"] = last;
    const answer = await fetch(url, { headers, signal: own.signal, cache: "no-store" });
    if (answer.status === 401) {
      token = "";
      followed = new Set();
      tell({ kind: "signed-out" });
      return;
    }
    if (!answer.ok || !answer.body) throw new Error(`HTTP ${answer.status}`);
    tell({ kind: "up", anew: !last });
    tries = 0;
    await read(answer.body, own.signal);
    throw new Error("the stream has ended");
  } catch {
    if (own.signal.aborted) return;
    tell({ kind: "down" });
    const pause = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]! * (0.5 + Math.random());
    tries += 1;
    setTimeout(() => own.signal.aborted || void run(), pause);
  }
}

async function read(body: ReadableStream<Uint8Array>, signal: AbortSignal): Promise<void> {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as TransformStream<Uint8Array, string>).getReader();
  let text = "";
  while (!signal.aborted) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    let end: number;
    while ((end = text.indexOf("\n\n")) >= 0) {
      message(text.slice(0, end));
      text = text.slice(end + 2);
    }
  }
}

function message(block: string): void {
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) last = line.slice(4);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data) tell({ kind: "changes", changes: JSON.parse(data) });
}

function joined(port: MessagePort): void {
  const page: Page = { port, topics: new Set(), seenMs: Date.now() };
  pages.add(page);
  port.onmessage = (event: MessageEvent<FromPage>) => {
    const said = event.data;
    page.seenMs = Date.now();
    if (!pages.has(page)) pages.add(page);
    if (said.kind === "hello") {
      root = said.root;
      if (said.token) token = said.token;
      port.postMessage({ kind: "token", token });
    } else if (said.kind === "token") {
      token = said.token;
      current?.abort();
      followed = new Set();
      for (const other of pages) if (other !== page) other.port.postMessage({ kind: "token", token });
    } else if (said.kind === "topics") {
      page.topics = new Set(said.topics);
    }
    follow();
  };
  port.start?.();
}

// Ports do not say that their page is gone.
setInterval(() => {
  for (const page of pages) if (Date.now() - page.seenMs > GONE_MS) pages.delete(page);
  follow(true);
}, 15_000);

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => joined(event.ports[0]!);

export {};
