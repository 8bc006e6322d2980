// The shortcuts, from the same table that obeys them.
import { t } from "../i18n";
import { enabled, helpOpen, PAGES, setEnabled } from "../keys";
import { Dialog } from "./basics";

const NAMES: Record<string, string> = {
  o: "overview", j: "jobs", n: "nodes", q: "queues", t: "timeline", u: "usage", c: "money", w: "whatif", e: "schedules", s: "submit", a: "admin", l: "audit",
};

export function Help() {
  return (
    <Dialog title={t("help.title")} onClose={() => (helpOpen.value = false)}>
      <div class="dialog-body">
        <dl class="keys">
          <dt><kbd>/</kbd></dt><dd>{t("help.search")}</dd>
          <dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>{t("help.rows")}</dd>
          <dt><kbd>Enter</kbd></dt><dd>{t("help.open")}</dd>
          <dt><kbd>Esc</kbd></dt><dd>{t("help.close")}</dd>
          {Object.keys(PAGES).map((key) => [<dt key={key}><kbd>g</kbd> <kbd>{key}</kbd></dt>, <dd key={`${key}d`}>{t(`nav.${NAMES[key]}`)}</dd>])}
        </dl>
        <label class="check"><input type="checkbox" checked={enabled.value} onChange={(event) => setEnabled(event.currentTarget.checked)} /> {t("help.enabled")}</label>
      </div>
      <footer class="dialog-foot"><button type="button" onClick={() => (helpOpen.value = false)}>{t("close")}</button></footer>
    </Dialog>
  );
}
