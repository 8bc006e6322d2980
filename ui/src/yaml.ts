// Job files as text: what the form makes, in the YAML that `penstock submit` reads. Texts are quoted where they must be.

export type Value = string | number | boolean | Value[] | { [name: string]: Value };
const PLAIN = /^[A-Za-z_/][\w ./@%+-]*$/;
const RESERVED = /^(true|false|yes|no|on|off|null|~)$/i;

function scalar(value: string | number | boolean): string {
  if (typeof value !== "string") return String(value);
  return PLAIN.test(value) && !RESERVED.test(value) && value.trim() === value ? value : JSON.stringify(value);
}

/** Return a mapping as YAML. */
export function yaml(value: { [name: string]: Value }, indent = ""): string {
  return Object.entries(value).map(([plain, one]) => {
    const name = scalar(plain);
    if (Array.isArray(one)) return `${indent}${name}: [${one.map((item) => (typeof item === "object" ? JSON.stringify(item) : scalar(item))).join(", ")}]\n`;
    if (typeof one === "object") return `${indent}${name}:\n${yaml(one, `${indent}  `)}`;
    return `${indent}${name}: ${scalar(one)}\n`;
  }).join("");
}
