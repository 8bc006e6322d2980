// A change of one declared entry by a form: shown first, made for the configuration that was shown, refused beside its field.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Refused, send } from "../api/client";
import type { ConfigPlan, ConfigView } from "../api/types.gen";
import { said } from "../api/use";
import { t } from "../i18n";
import { Copy, Dialog, note, Problem } from "./basics";

/** Changes in the words of a cluster file: entries that end and begin, such as `user.ann`, and PATH=VALUE. */
export type Change = { remove?: string[]; add?: string[]; set: string[] };
/** The entry whose form is open; a new one has no name. */
export type Open = { name: string; what: "edit" | "disable" | "remove" };
export type Entry = Record<string, unknown> & { name: string };
type Wrong = { field: string; message: string; value?: string };
/** What the server says about a field of the form. */
export type About = (field: string) => string[];

const NUMBER = /^-?\d+(\.\d+)?$/;
/** Characters that JSON writes as they are, and YAML takes for line breaks or refuses. */
const UNPRINTABLE = /[\u007f-\u009f]/g;

/** Return what was typed as a value: a number where it is one, so that the server judges what was meant. */
export function typed(text: string): string | number {
  return NUMBER.test(text.trim()) ? Number(text) : text.trim();
}

/** Return one change; an empty value removes the field. */
export function line(path: string, value: unknown): string {
  const empty = value === "" || value === undefined || (typeof value === "object" && value !== null && !Object.keys(value).length);
  return empty ? `${path}=` : `${path}=${JSON.stringify(value).replace(UNPRINTABLE, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`)}`;
}

/** Return the entries of a section of the configuration. */
export function entries(view: ConfigView, section: string): Entry[] {
  return (view.config[section] as Entry[] | undefined) ?? [];
}

const isEmpty = (change: Change) => !change.set.length && !change.add?.length && !change.remove?.length;

/** Return the command that makes the same change. */
export function command(change: Change): string {
  const quoted = (text: string) => (/^[\w./=:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const [kind, name] = parted(change.remove?.[0] ?? change.add?.[0] ?? "");
  if (change.remove?.length) return `penstock admin remove ${kind} ${quoted(name)}`;
  if (change.add?.length) return ["penstock admin add", kind, quoted(name), ...change.set.map((one) => quoted(one.slice(`${kind}.${name}.`.length)))].join(" ");
  return ["penstock admin set", ...change.set.map(quoted)].join(" ");
}

function parted(entry: string): [string, string] {
  const at = entry.indexOf(".");
  return [entry.slice(0, at), entry.slice(at + 1)];
}

export type Edits = {
  value: (key: string) => string;
  edit: (key: string) => (event: { currentTarget: { value: string } }) => void;
  put: (key: string, value: string) => void;
  /** The value in force, where it is no longer the one that was edited. */
  now: (key: string) => string | undefined;
  changed: (key: string) => boolean;
  /** Keys with this beginning that have a value, in force or typed. */
  keys: (begin: string) => string[];
};

/** Keep what was typed apart from what is in force: what others change meanwhile is taken over where nothing was typed. */
export function useEdits(base: Record<string, string>): Edits {
  const first = useRef(base);
  const [own, setOwn] = useState<Record<string, string>>({});
  const put = (key: string, value: string) => setOwn((known) => ({ ...known, [key]: value }));
  const changed = (key: string) => own[key] !== undefined && own[key] !== (base[key] ?? "");
  return {
    value: (key) => own[key] ?? base[key] ?? "",
    edit: (key) => (event) => put(key, event.currentTarget.value),
    put,
    now: (key) => (changed(key) && (first.current[key] ?? "") !== (base[key] ?? "") ? (base[key] ?? "") : undefined),
    changed,
    keys: (begin) => [...new Set([...Object.keys(base), ...Object.keys(own)])].filter((key) => key.startsWith(begin)),
  };
}

/** Return a mapping of fields below `name`, such as `max` from `max.devices` and `max.cpus`; empty ones are left out. */
export function mapping(edits: Edits, name: string): Record<string, string | number> {
  const found: Record<string, string | number> = {};
  for (const key of edits.keys(`${name}.`)) if (edits.value(key).trim()) found[key.slice(name.length + 1)] = typed(edits.value(key));
  return found;
}

type Attributes = { id: string; "aria-invalid": "true" | undefined; "aria-describedby": string | undefined };

/** A field with its label, and what the server says about it. */
export function Said(props: { label: string; of: string[]; hint?: string; now?: string; children: (attributes: Attributes) => JSX.Element }) {
  const id = useId();
  const about = props.of.length || props.hint || props.now !== undefined;
  return (
    <div class="field">
      <label class="field-label" for={id}>{props.label}</label>
      {props.children({ id, "aria-invalid": props.of.length ? "true" : undefined, "aria-describedby": about ? `${id}-about` : undefined })}
      {about ? (
        <div id={`${id}-about`}>
          {props.of.map((message) => <p key={message} class="wrong">{message}</p>)}
          {props.now !== undefined ? <p class="wrong">{t("declare.now", { value: props.now || t("none") })}</p> : null}
          {props.hint ? <span class="faint">{props.hint}</span> : null}
        </div>
      ) : null}
    </div>
  );
}

/** Return the problems of one entry by the fields of its form, and all others. */
function sorted(error: unknown, path: string, adds: string, fields: string[]): { beside: Map<string, string[]>; rest: boolean } {
  const beside = new Map<string, string[]>();
  let rest = false;
  const problems = (error instanceof Refused ? said(error).problems : []) as Wrong[];
  for (const one of problems) {
    const own = adds && one.value === adds ? "name" : one.field.startsWith(path) ? one.field.slice(path.length) : "";
    const field = fields.filter((name) => own === name || (own.startsWith(name) && ".[".includes(own[name.length]!))).sort((a, b) => b.length - a.length)[0];
    if (field) beside.set(field, [...(beside.get(field) ?? []), one.message.replace(path, "")]);
    else rest = true;
  }
  return { beside, rest: rest || !problems.length };
}

/** A dialog that makes one change: its preview, then the change as it was shown.
 *
 * `path` is what problems of the entry begin with, such as `tenants[2].`; `fields` are those that `children` shows.
 */
export function Declare(props: {
  title: string; view: ConfigView; path: string; fields: string[]; change: Change; done: string; warning?: string; danger?: boolean;
  /** Show the preview at once: there is nothing to fill in. */
  auto?: boolean;
  /** Remove the entry instead. */
  onRemove?: () => void;
  onClose: () => void; reload: () => void; children?: (about: About) => ComponentChildren;
}) {
  const [plan, setPlan] = useState<ConfigPlan | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const apply = useRef<HTMLButtonElement>(null);
  const shown = useRef<HTMLDivElement>(null);
  const question = JSON.stringify(props.change) + props.view.digest;
  const asked = useRef(question);
  asked.current = question;
  const last = useRef(0);
  useEffect(() => setPlan(null), [question]);
  const ask = async (dryRun: boolean) => {
    setBusy(true);
    setProblem(null);
    const of = question;
    const own = (last.current += 1);
    const late = () => dryRun && own !== last.current; // another was asked since, and may have been answered before
    try {
      const answer = await send("POST", "/config", { body: { ...props.change, dry_run: dryRun }, headers: { "If-Match": `"${props.view.digest}"` }, key: true });
      const found = (await answer.json()) as ConfigPlan;
      if (!dryRun) {
        note(props.done);
        props.reload();
        props.onClose();
        return;
      }
      if (late()) return;
      if (asked.current === of) setPlan(found);
    } catch (error) {
      if (late()) return;
      setPlan(null);
      setProblem(error);
    }
    setBusy(false);
  };
  useEffect(() => void (props.auto && ask(true)), [props.view.digest]);
  useEffect(() => {
    if (!plan) return;
    shown.current?.scrollIntoView({ block: "nearest" });
    apply.current?.focus();
  }, [plan]);
  useEffect(() => {
    if (!problem) return;
    form.current?.querySelector("[role=alert]")?.scrollIntoView({ block: "nearest" });
    form.current?.querySelector<HTMLElement>("[aria-invalid=true], [data-take]")?.focus();
  }, [problem]);
  const { beside, rest } = sorted(problem, props.path, props.change.add?.[0] ?? "", props.fields);
  const moved = problem instanceof Refused && problem.status === 412;
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <form ref={form} onSubmit={(event) => { event.preventDefault(); void ask(true); }}>
        <div class="dialog-body">
          {props.warning ? <p class="banner" role="status">{props.warning}</p> : null}
          {props.children?.((field) => beside.get(field) ?? [])}
          {problem && rest ? <Problem of={problem} /> : null}
          {moved ? <p><button type="button" data-take onClick={() => { setProblem(null); props.reload(); }}>{t("declare.take_now")}</button></p> : null}
          <div role="status" ref={shown}>
            {plan ? (
              <>
                <h3>{t("admin.would_change", { n: plan.changes.length })}</h3>
                {plan.changes.length ? <ul class="lines">{plan.changes.map((change) => <li key={change.path}><code>{change.path}</code> {change.old || "–"} → <strong>{change.new || "–"}</strong></li>)}</ul> : <p class="faint">{t("admin.no_change")}</p>}
                {plan.changes.length && !(props.change.remove && props.change.set.length) ? <details><summary>{t("declare.command")}</summary><Copy text={command(props.change)} /></details> : null}
              </>
            ) : null}
          </div>
        </div>
        <footer class="dialog-foot">
          {props.onRemove ? <button type="button" class="danger aside-left" onClick={props.onRemove}>{t("declare.remove")}</button> : null}
          <button type="button" onClick={props.onClose}>{t("cancel")}</button>
          {plan?.changes.length ? <button ref={apply} type="button" class={props.danger ? "danger" : "primary"} disabled={busy} onClick={() => void ask(false)}>{t("declare.apply")}</button>
            : <button type="submit" class="primary" disabled={busy || isEmpty(props.change)}>{t("admin.preview")}</button>}
        </footer>
      </form>
    </Dialog>
  );
}

/** Ask whether an entry is to be removed, with all that this changes. */
export function Remove(props: { view: ConfigView; name: string; change: Change; text: string; warning?: string; onClose: () => void; reload: () => void }) {
  return (
    <Declare title={t("declare.remove_title", { name: props.name })} view={props.view} path="" fields={[]} auto danger change={props.change} warning={props.warning} done={t("declare.removed", { name: props.name })} onClose={props.onClose} reload={props.reload}>{() => <p>{props.text}</p>}</Declare>
  );
}

const RESOURCES = ["devices", "cpus", "memory", "jobs"];
const PLACEHOLDERS: Record<string, string> = { devices: "16", cpus: "64", memory: "512GiB", storage: "10TiB", jobs: "40" };

/** Amounts of resources below `name`, such as `max.devices`: the common ones, those in force, and others by their name. */
export function Amounts(props: { title: string; hint?: string; name: string; edits: Edits; about: About; fields: string[] }) {
  const [other, setOther] = useState("");
  const box = useRef<HTMLFieldSetElement>(null);
  const take = () => {
    const key = `${props.name}.${other.trim()}`;
    if (!other.trim()) return;
    if (!props.fields.includes(key)) props.edits.put(key, "");
    setOther("");
    requestAnimationFrame(() => box.current?.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`)?.focus());
  };
  return (
    <fieldset class="amounts" ref={box}>
      <legend class="field-label">{props.title}</legend>
      {props.hint ? <p class="faint">{props.hint}</p> : null}
      {props.about(props.name).map((message) => <p key={message} class="wrong">{message}</p>)}
      <div class="fields">
        {amountFields(props.name, props.edits).map((key) => {
          const resource = key.slice(props.name.length + 1);
          return (
            <Said key={key} label={resource} of={props.about(key)} now={props.edits.now(key)}>
              {(attributes) => <input {...attributes} data-key={key} value={props.edits.value(key)} placeholder={PLACEHOLDERS[resource.split("/").at(-1)!.split(":")[0]!] ?? ""} onInput={props.edits.edit(key)} />}
            </Said>
          );
        })}
      </div>
      <p class="tools">
        <label class="grow"><span class="faint">{t("declare.other_resource")}</span> <input value={other} placeholder="devices:H100" onInput={(event) => setOther(event.currentTarget.value)} onKeyDown={(event) => { if (event.key === "Enter") { event.preventDefault(); take(); } }} /></label>
        <button type="button" class="small" disabled={!other.trim()} onClick={take}>{t("declare.add_resource")}</button>
      </p>
    </fieldset>
  );
}

/** Return the fields that `Amounts` shows. */
export function amountFields(name: string, edits: Edits): string[] {
  return [...new Set([...RESOURCES.map((one) => `${name}.${one}`), ...edits.keys(`${name}.`)])];
}

/** Return the amounts of an entry as texts by field, such as `max.devices`. */
export function amountTexts(name: string, of: unknown): Record<string, string> {
  return Object.fromEntries(Object.entries((of as Record<string, unknown> | undefined) ?? {}).map(([resource, value]) => [`${name}.${resource}`, String(value)]));
}

/** Return the changes of amounts below `name`. */
export function amountChanges(path: string, name: string, edits: Edits): string[] {
  return edits.keys(`${name}.`).some(edits.changed) ? [line(`${path}.${name}`, mapping(edits, name))] : [];
}
