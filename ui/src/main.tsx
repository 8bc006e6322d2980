// The shell of the pages: who is signed in, the navigation, and the page that the address names.
import { Component, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Signal, signal } from "@preact/signals";
import type { ComponentChildren, ComponentType } from "preact";
import { maySubmit, me, reachable, whenSignedOut } from "./api/client";
import { counts, forget, join, renew, share, signedIn, stays, streaming, whenSessionEnds } from "./api/live";
import { CALLBACK, hasBegun } from "./api/signin";
import { setUtc, utc } from "./format";
import { LANGUAGES, type Language, language, preferred, t, use } from "./i18n";
import { helpOpen, onKey } from "./keys";
import { Help } from "./parts/help";
import { A, Notes } from "./parts/basics";
import { Login, codeOfLink } from "./pages/login";
import { go, onClick, path } from "./router";
import { THEMES, type Theme, theme } from "./theme";

type PageModule = { Page: ComponentType<{ id: string }> };
type Entry = { match: RegExp; load: () => Promise<PageModule>; nav?: string; to?: string; role?: boolean; submits?: boolean };

const PAGES: Entry[] = [
  { match: /^\/$/, load: () => import("./pages/overview"), nav: "overview", to: "/" },
  { match: /^\/jobs$/, load: () => import("./pages/jobs"), nav: "jobs", to: "/jobs" },
  { match: /^\/jobs\/(\d+)$/, load: () => import("./pages/job") },
  { match: /^\/nodes$/, load: () => import("./pages/nodes"), nav: "nodes", to: "/nodes" },
  { match: /^\/queues$/, load: () => import("./pages/queues"), nav: "queues", to: "/queues" },
  { match: /^\/timeline$/, load: () => import("./pages/timeline"), nav: "timeline", to: "/timeline" },
  { match: /^\/usage$/, load: () => import("./pages/usage"), nav: "usage", to: "/usage" },
  { match: /^\/money$/, load: () => import("./pages/money"), nav: "money", to: "/money" },
  { match: /^\/whatif$/, load: () => import("./pages/whatif"), nav: "whatif", to: "/whatif", role: true },
  { match: /^\/schedules$/, load: () => import("./pages/schedules"), nav: "schedules", to: "/schedules" },
  { match: /^\/submit$/, load: () => import("./pages/submit"), nav: "submit", to: "/submit", submits: true },
  { match: /^\/admin$/, load: () => import("./pages/admin"), nav: "admin", to: "/admin" },
  { match: /^\/audit$/, load: () => import("./pages/audit"), nav: "audit", to: "/audit" },
  { match: /^\/alerts$/, load: () => import("./pages/alerts") },
];

const mounted: Signal<{ page: ComponentType<{ id: string }>; id: string; at: string } | "missing" | null> = signal(null);
const loadProblem = signal(false);

async function mount(at: string): Promise<void> {
  for (const entry of PAGES) {
    const found = entry.match.exec(at);
    if (!found) continue;
    if (mounted.value === "missing") mounted.value = null;
    try {
      const module = await entry.load();
      loadProblem.value = false;
      if (path.value === at) mounted.value = { page: module.Page, id: found[1] ?? "", at };
    } catch {
      loadProblem.value = true; // the server was updated, or does not answer
    }
    return;
  }
  if ((at === "/login" || at === CALLBACK) && me.value) go("/", { replace: true });
  else mounted.value = at === "/login" || at === CALLBACK ? null : "missing";
}

function App() {
  const [ready, setReady] = useState(false);
  useEffect(() => {
    void (async () => {
      await use(preferred()).catch(() => use("en"));
      const own = await join();
      const signsIn = codeOfLink() || (path.value === CALLBACK && hasBegun());
      if (own && !signsIn) {
        share(own, stays(own.user));
        await signedIn().catch(() => undefined);
      }
      setReady(true);
    })();
    const timer = setInterval(() => void renew().catch(() => undefined), 600_000);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => void mount(path.value), [path.value]);
  if (!ready) return <p class="loading" role="status">…</p>;
  if (!me.value) return <><Login /><Notes /></>;
  return <Shell />;
}

function Shell() {
  const shown = mounted.value;
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [path.value]);
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>{t("skip")}</a>
      <header class="top">
        <button type="button" class="menu" aria-expanded={open} aria-controls="nav" onClick={() => setOpen(!open)}><span aria-hidden="true">☰</span><span class="hidden">{t("menu")}</span></button>
        <A to="/" class="brand">Penstock</A>
        <Pulse />
        <Viewer />
      </header>
      <nav id="nav" class={open ? "nav open" : "nav"} aria-label={t("nav.label")}>
        <ul>
          {PAGES.filter((entry) => entry.nav && (!entry.role || me.value?.role) && (!entry.submits || maySubmit())).map((entry) => (
            <li key={entry.nav}>
              <a href={hrefOf(entry.to!)} aria-current={isAt(entry.to!) ? "page" : undefined}>
                {t(`nav.${entry.nav}`)}
                {entry.nav === "jobs" && counts.value ? <span class="count">{(counts.value.jobs.by_state.waiting ?? 0).toLocaleString(language.value)}</span> : null}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <main id="main" tabIndex={-1}>
        {reachable.value ? null : <p class="banner" role="alert">{t("unreachable")}</p>}
        {loadProblem.value ? <p class="banner" role="alert">{t("outdated")} <button type="button" onClick={() => location.reload()}>{t("reload")}</button></p> : null}
        {shown === "missing" ? <Missing /> : shown ? <Guard key={shown.at}><shown.page id={shown.id} /></Guard> : null}
      </main>
      <Notes />
      {helpOpen.value ? <Help /> : null}
    </div>
  );
}

/** A fault of one page leaves the others usable, and says so. */
class Guard extends Component<{ children: ComponentChildren }, { failed: string }> {
  override state = { failed: "" };
  override componentDidCatch(error: unknown) {
    console.error(error);
    this.setState({ failed: String(error) });
  }
  override render() {
    if (!this.state.failed) return this.props.children;
    return <div class="problem" role="alert"><p><strong>{t("fault")}</strong></p><p><code>{this.state.failed}</code></p><button type="button" onClick={() => this.setState({ failed: "" })}>{t("retry")}</button></div>;
  }
}

function Missing() {
  return <div class="empty"><h1>{t("missing.title")}</h1><p>{t("missing.hint", { path: path.value })}</p><A to="/">{t("nav.overview")}</A></div>;
}

function hrefOf(page: string): string {
  return new URL(page.replace(/^\//, "./"), new URL("../", import.meta.url)).pathname;
}

function isAt(page: string): boolean {
  return page === "/" ? path.value === "/" : path.value.startsWith(page);
}

function Pulse() {
  return <span class={streaming.value ? "pulse live" : "pulse"} title={t(streaming.value ? "live" : "not_live")}><span aria-hidden="true">●</span><span class="hidden">{t(streaming.value ? "live" : "not_live")}</span></span>;
}

function Viewer() {
  const who = me.value!;
  return (
    <div class="viewer">
      <select aria-label={t("language")} value={language.value} onChange={(event) => void use(event.currentTarget.value as Language)}>
        {Object.entries(LANGUAGES).map(([key, name]) => <option key={key} value={key}>{name}</option>)}
      </select>
      <select aria-label={t("theme")} value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
        {THEMES.map((key) => <option key={key} value={key}>{t(`theme.${key}`)}</option>)}
      </select>
      <button type="button" class="small" aria-pressed={utc.value} onClick={() => setUtc(!utc.value)} title={t("utc.hint")}>UTC</button>
      <button type="button" class="small" onClick={() => (helpOpen.value = true)} aria-label={t("help.title")}>?</button>
      <span class="who" title={who.role ? t(`role.${who.role}`) : Object.keys(who.tenants).join(", ")}>{who.user}</span>
      <button type="button" class="small" onClick={() => { forget(); go("/login"); }}>{t("sign_out")}</button>
    </div>
  );
}

whenSignedOut(forget);
whenSessionEnds(forget);
document.addEventListener("click", onClick);
document.addEventListener("keydown", onKey);
render(<App />, document.getElementById("app")!);
