// Small parts that all pages use.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import { said } from "../api/use";
import { ago, iso, time as shownTime } from "../format";
import { t, word } from "../i18n";
import { addressOf } from "../root";

/** A link to a page. */
export function A(props: { to: string; children: ComponentChildren; class?: string; label?: string }) {
  return <a href={addressOf(props.to)} class={props.class} aria-label={props.label}>{props.children}</a>;
}

const SIGNS: Record<string, string> = {
  waiting: "◌", starting: "◔", running: "●", suspended: "❙❙", stopping: "◑", succeeded: "✓", failed: "✕", cancelled: "⊘",
  ready: "●", lost: "✕", draining: "◑", unhealthy: "✕", free: "○", used: "●",
};

/** A state: a word with a sign, never a colour alone. */
export function State(props: { of: string; kind?: string }) {
  return (
    <span class={`state state-${props.of}`}>
      <span class="sign" aria-hidden="true">{SIGNS[props.of] ?? "•"}</span>
      {word(props.kind ?? "state", props.of)}
    </span>
  );
}

/** A time: short, with the whole of it as a tooltip. */
export function Time(props: { ms: number; relative?: boolean }) {
  if (!props.ms) return <span class="faint">–</span>;
  return <time dateTime={new Date(props.ms).toISOString()} title={iso(props.ms)}>{props.relative ? ago(props.ms) : shownTime(props.ms)}</time>;
}

export type Part = { value: number; kind: string; label: string };

/** Parts of a whole as a bar, with words for who does not see it. */
export function Bar(props: { parts: Part[]; whole: number; label: string }) {
  const text = props.parts.filter((part) => part.value > 0).map((part) => `${part.label} ${Math.round(part.value * 100) / 100}`).join(", ");
  return (
    <div class="bar" role="img" aria-label={`${props.label}: ${text || t("none")}`} title={text}>
      {props.parts.map((part) =>
        part.value > 0 ? <Piece key={part.kind} kind={part.kind} share={props.whole ? part.value / props.whole : 0} /> : null,
      )}
    </div>
  );
}

function Piece(props: { kind: string; share: number }) {
  const ref = useRef<HTMLSpanElement>(null);
  useLayoutEffect(() => {
    if (ref.current) ref.current.style.width = `${Math.min(100, props.share * 100)}%`;
  }, [props.share]);
  return <span ref={ref} class={`piece piece-${props.kind}`} />;
}

export function Card(props: { title?: string; children: ComponentChildren; class?: string; tools?: ComponentChildren }) {
  return (
    <section class={`card ${props.class ?? ""}`}>
      {props.title ? <header class="card-head"><h2>{props.title}</h2><div class="tools">{props.tools}</div></header> : null}
      {props.children}
    </section>
  );
}

/** What is shown where there is nothing: why, and what to do, with the command for it. */
export function Empty(props: { title: string; hint?: string; command?: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{props.title}</p>
      {props.hint ? <p>{props.hint}</p> : null}
      {props.command ? <Copy text={props.command} /> : null}
      {props.children}
    </div>
  );
}

/** A command or a number that may be copied. */
export function Copy(props: { text: string }) {
  const [done, set] = useState(false);
  const copy = () => void navigator.clipboard?.writeText(props.text).then(() => {
    set(true);
    setTimeout(() => set(false), 1_500);
  });
  return (
    <span class="copy">
      <code>{props.text}</code>
      <button type="button" class="small" onClick={copy}>{done ? t("copied") : t("copy")}</button>
    </span>
  );
}

/** Words of a refusal, with each field that is wrong. */
export function Problem(props: { of: unknown; retry?: () => void }) {
  const { title, hint, problems } = said(props.of);
  return (
    <div class="problem" role="alert">
      <p><strong>{title}</strong></p>
      {problems.length > 1 ? <ul>{problems.map((one) => <li key={one.field + one.message}>{one.message}</li>)}</ul> : null}
      {hint ? <p>{hint}</p> : null}
      {props.retry ? <button type="button" onClick={props.retry}>{t("retry")}</button> : null}
    </div>
  );
}

/** What is loading, refused, or there. */
export function Shown<T>(props: { of: { value: T | null; problem: Error | null; madeMs: number; reload: () => void }; children: (value: T) => ComponentChildren }) {
  if (props.of.value !== null) {
    return (
      <>
        {props.of.problem ? <Problem of={props.of.problem} retry={props.of.reload} /> : null}
        {props.of.madeMs ? <p class="faint" role="status">{t("as_of")} <Time ms={props.of.madeMs} />; {t("as_of_hint")}</p> : null}
        {props.children(props.of.value)}
      </>
    );
  }
  if (props.of.problem) return <Problem of={props.of.problem} retry={props.of.reload} />;
  return <p class="loading" role="status">{t("loading")}</p>;
}

type Note = { id: number; text: string; bad: boolean };
export const notes = signal<Note[]>([]);
let noteId = 0;

/** Say what was done, for a moment. */
export function note(text: string, bad = false): void {
  const id = ++noteId;
  notes.value = [...notes.value, { id, text, bad }];
  setTimeout(() => (notes.value = notes.value.filter((one) => one.id !== id)), bad ? 10_000 : 5_000);
}

export function Notes() {
  return (
    <div class="notes" role="status" aria-live="polite">
      {notes.value.map((one) => <p key={one.id} class={one.bad ? "note bad" : "note"}>{one.text}</p>)}
    </div>
  );
}

/** A dialog that keeps the focus, ends by Escape, and gives the focus back. */
export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement as HTMLElement | null;
    dialog?.showModal();
    return () => {
      dialog?.close();
      queueMicrotask(() => before?.focus()); // a dialog that is taken out of the page gives no focus back
    };
  }, []);
  return (
    <dialog ref={ref} aria-label={props.title} onCancel={(event) => { event.preventDefault(); props.onClose(); }}>
      <header><h2>{props.title}</h2></header>
      {props.children}
    </dialog>
  );
}

/** Ask before something is done, and show what the server says to it. */
export function Confirm(props: {
  title: string; action: string; danger?: boolean; onClose: () => void; run: () => Promise<string | void>; children?: ComponentChildren; disabled?: boolean;
}) {
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const run = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const done = await props.run();
      if (done) note(done);
      props.onClose();
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <form onSubmit={run}>
        <div class="dialog-body">{props.children}{problem ? <Problem of={problem} /> : null}</div>
        <footer class="dialog-foot">
          <button type="button" onClick={props.onClose}>{t("cancel")}</button>
          <button type="submit" class={props.danger ? "danger" : "primary"} disabled={busy || props.disabled}>{props.action}</button>
        </footer>
      </form>
    </Dialog>
  );
}

/** A field with its label. */
export function Field(props: { label: string; hint?: string; children: JSX.Element }) {
  return <label class="field"><span class="field-label">{props.label}</span>{props.children}{props.hint ? <span class="faint">{props.hint}</span> : null}</label>;
}

/** A page's title line, with what may be done there. */
export function Head(props: { title: string; children?: ComponentChildren; sub?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${props.title} · Penstock`;
  }, [props.title]);
  return <header class="page-head"><div><h1>{props.title}</h1>{props.sub ? <p class="sub">{props.sub}</p> : null}</div><div class="tools">{props.children}</div></header>;
}

/** A choice of a few. */
export function Tabs(props: { of: [string, string][]; at: string; onChoose: (key: string) => void; label: string }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const chosen = box.current?.querySelector<HTMLElement>("[aria-selected=true]");
    if (box.current && chosen) box.current.scrollLeft = chosen.offsetLeft - (box.current.clientWidth - chosen.offsetWidth) / 2;
  }, [props.at]);
  const move = (event: KeyboardEvent) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    const at = props.of.findIndex(([key]) => key === props.at);
    const next = props.of[(at + by + props.of.length) % props.of.length]!;
    props.onChoose(next[0]);
    (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[role=tab]")[(at + by + props.of.length) % props.of.length]?.focus();
  };
  return (
    <div class="tabs" ref={box} role="tablist" aria-label={props.label} onKeyDown={move}>
      {props.of.map(([key, text]) => (
        <button key={key} type="button" role="tab" aria-selected={key === props.at} tabIndex={key === props.at ? 0 : -1} onClick={() => props.onChoose(key)}>{text}</button>
      ))}
    </div>
  );
}

/** A figure with its name. */
export function Figure(props: { name: string; value: ComponentChildren; sub?: ComponentChildren; to?: string }) {
  const body = <><span class="figure-name">{props.name}</span><span class="figure-value">{props.value}</span>{props.sub ? <span class="faint">{props.sub}</span> : null}</>;
  return props.to ? <A to={props.to} class="figure">{body}</A> : <div class="figure">{body}</div>;
}
