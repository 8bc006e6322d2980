// The fields of the form for a job, and the request that they describe in the words of a job file.
import type { Value } from "./yaml";

export const ENVIRONMENTS = ["requirements", "packages", "project", "conda", "image"] as const;
type Texts = Record<
  "name" | "command" | "devices" | "replicas" | "replicas_max" | "model" | "cpus" | "memory" | "queue" | "tenant" | "priority" | "time_limit"
  | "array" | "workdir" | "pool" | "environment" | "environment_of" | "python_version" | "setup" | "env" | "inputs" | "ports" | "runtime"
  | "interval" | "batch_min" | "batch_max" | "batch_device" | "cron" | "zone" | "overlap",
  string
>;
export type Form = Texts & { preemptible: boolean; shared: boolean };
export type Request = { [name: string]: Value };
export const EMPTY: Form = {
  name: "", command: "", devices: "0", replicas: "", replicas_max: "", model: "", cpus: "", memory: "", queue: "", tenant: "", priority: "", time_limit: "",
  array: "", workdir: "", pool: "", environment: "", environment_of: "", python_version: "", setup: "", env: "", inputs: "", ports: "", runtime: "",
  interval: "", batch_min: "", batch_max: "", batch_device: "", cron: "", zone: "", overlap: "", preemptible: true, shared: false,
};

const lines = (text: string) => text.split("\n").map((line) => line.trim()).filter(Boolean);

/** Return lines such as `NAME=value` as a mapping; a line without the sign between them has an empty value. */
function pairs(text: string, between: RegExp): Request {
  return Object.fromEntries(lines(text).map((line) => {
    const at = line.search(between);
    return at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1).trim()];
  }));
}

/** Return the environment that the program runs in: packages of Python, one of conda, or an image. */
function environment(form: Form): Request {
  const of = form.environment_of.trim();
  if (!form.environment || !of) return {};
  if (form.environment === "conda" || form.environment === "image") return { [form.environment]: of };
  const version: Request = form.python_version.trim() ? { version: form.python_version.trim() } : {};
  if (form.environment === "project") return { python: { project: of, ...version } };
  return { python: { requirements: form.environment === "packages" ? of.split(/[\s,]+/).filter(Boolean) : of, ...version } };
}

function put(into: Request, name: string, value: Value): void {
  const empty = value === "" || (typeof value === "object" && !Object.keys(value).length);
  if (!empty) into[name] = value;
}

/** Return the batch sizes that the job accepts; none where the form names none. */
function batchOf(form: Form): Request {
  const found: Request = {};
  for (const [name, of] of [["min", form.batch_min], ["max", form.batch_max], ["per_device_max", form.batch_device]] as const) if (of) found[name] = Number(of);
  return found;
}

/** Return the request that the form describes, in the words of a job file; without the schedule that it may have. */
export function requestOf(form: Form): Request {
  const found: Request = {};
  put(found, "name", form.name.trim());
  put(found, "command", form.command.trim());
  for (const name of ["tenant", "queue", "pool", "time_limit", "workdir", "array"] as const) put(found, name, form[name].trim());
  if (form.priority) put(found, "priority", /^-?\d+$/.test(form.priority) ? Number(form.priority) : form.priority);
  if (Number(form.devices)) found.devices = form.model ? { count: Number(form.devices), model: form.model } : Number(form.devices);
  if (Number(form.replicas_max) > Number(form.replicas || 1)) found.replicas = `${form.replicas || 1}..${form.replicas_max}`;
  else if (Number(form.replicas) > 1) found.replicas = Number(form.replicas);
  if (form.cpus) found.cpus = Number(form.cpus);
  put(found, "memory", form.memory.trim());
  if (!form.preemptible) found.preemptible = false;
  Object.assign(found, environment(form));
  put(found, "setup", lines(form.setup));
  put(found, "env", pairs(form.env, /=/));
  put(found, "inputs", pairs(form.inputs, /\s/));
  put(found, "ports", form.ports.split(/[\s,]+/).filter(Boolean));
  put(found, "runtime", form.runtime);
  put(found, "batch", batchOf(form));
  put(found, "checkpoint", { ...(form.interval.trim() ? { interval: form.interval.trim() } : {}), ...(form.shared ? { shared: true } : {}) });
  return found;
}

/** Return the rule of the schedule that the form describes; null where it has none. */
export function scheduleOf(form: Form): Request | null {
  if (!form.cron.trim()) return null;
  const rule: Request = { cron: form.cron.trim() };
  put(rule, "zone", form.zone.trim());
  put(rule, "overlap", form.overlap);
  return rule;
}
