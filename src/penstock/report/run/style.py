"""The page's stylesheet and script, inlined by `page`. No address of anything outside may stand here."""

from collections.abc import Sequence

from penstock.report.run.causes import CAUSES

TENANT_COLOURS = ("#77aadd", "#ee8866", "#44bb99", "#eedd88", "#ffaabb", "#99ddff", "#bbcc33", "#aaaa00", "#dddddd")
"""Safe for the colour-blind and under dark text; the last one is for all tenants beyond the others.

Source: the `light` scheme of P. Tol, Colour Schemes, SRON/EPS/TN/09-002, 2021.
"""

_CSS = """
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1c2024;--dim:#5a626b;--line:#dfe3e6;--soft:#eef1f3;
--ready:#f3f5f7;--absent:#e3e6e9;--held:#4477aa;--avail:#1c2024;--wait:#aa3377;--bad:#b3261e;--good:#1a7f4b;
--amber:#9a6700;--lost:#b3261e22;--drain:#ccbb4455;--link:#1d5fa8}
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--card:#1c2024;--ink:#e8eaed;--dim:#a0a8b0;--line:#343b42;
--soft:#262c32;--ready:#23292f;--absent:#181b1f;--held:#6699cc;--avail:#e8eaed;--wait:#dd77aa;--bad:#ff8a80;
--good:#6fd39b;--amber:#e5c264;--lost:#ff8a8022;--drain:#ccbb4440;--link:#8ab8ee}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:28px 24px 48px;background:var(--bg);color:var(--ink);
overflow-wrap:break-word;font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1{font-size:26px;line-height:1.2;margin:0}h2{font-size:18px;margin:36px 0 8px}
p{margin:4px 0}.sub,.note,small,caption{color:var(--dim)}.note{font-size:13px}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.chip{display:inline-block;white-space:nowrap;border:1px solid var(--amber);color:var(--amber);border-radius:9px;
padding:0 8px;font-size:12px;margin-left:6px;vertical-align:2px}
dl.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(178px,1fr));gap:12px;margin:20px 0 0}
dl.tiles div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
dl.tiles dt{font-size:13px;color:var(--dim)}dl.tiles dd{margin:0}
dl.tiles dd.big{font-size:25px;font-weight:650;line-height:1.25;font-variant-numeric:tabular-nums}
dl.tiles dd.more{font-size:13px;color:var(--dim);min-height:20px}
ol.story{margin:0;padding:0;list-style:none}
ol.story li{padding:3px 0 3px 62px;position:relative;max-width:118ch}
ol.story time{position:absolute;left:0;color:var(--dim);font-variant-numeric:tabular-nums}
figure{margin:0}.wide{overflow-x:auto}.wide svg{min-width:820px;width:100%;height:auto;display:block}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px;margin:2px 0 10px}
.key{white-space:nowrap}.key i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;
vertical-align:-1px}
.key svg{width:14px!important;min-width:0!important;height:14px;display:inline-block!important;vertical-align:-2px;
margin-right:5px}
svg text{font-size:11px;fill:var(--ink);font-family:inherit}svg .tick{fill:var(--dim)}
svg .node{font-weight:650;font-size:12px}svg .panel{font-size:12px;fill:var(--dim)}
.grid,.lane{stroke:var(--line);stroke-width:1;fill:none}.lane{opacity:.7}
.absent{fill:var(--absent)}.ready{fill:var(--ready)}.s-lost{fill:var(--lost)}.s-draining{fill:var(--drain)}
.s-joining{fill:var(--absent)}.gone{stroke:var(--bad);stroke-width:1.6;opacity:.35}
svg .span-text{font-weight:650;paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round}
.bar{stroke:#0000002e;stroke-width:.6}.bar.open{stroke:var(--ink);stroke-dasharray:3 2;stroke-width:1}
svg .bar-text{fill:#16191c;pointer-events:none}.hatch{stroke:#16191c;stroke-width:2.4;opacity:.62}
.arrow,.halo{fill:none;stroke:#16191c;stroke-width:1.5;pointer-events:none}.halo{stroke:#fff;stroke-width:3.5;opacity:.8}
.head{fill:#16191c}.asked,.mark{pointer-events:none}
.m-lost,.m-failed{fill:#b3261e;stroke:#fff;stroke-width:1}.m-preempted{fill:#1c2024;stroke:#fff;stroke-width:1}
.sign{stroke:#fff;stroke-width:1.6;fill:none;stroke-linecap:round}
.held{fill:var(--held);opacity:.8}.available{fill:none;stroke:var(--avail);stroke-width:1.6}
.waiting{fill:var(--wait);opacity:.75}
g.lit .bar{stroke:var(--ink);stroke-width:2.2}tr.lit>*,tr:target>*{background:var(--soft)}
table{border-collapse:collapse;width:100%;min-width:560px;background:var(--card);font-size:14px;
font-variant-numeric:tabular-nums}table.dense{min-width:1080px}tbody,tr{background:inherit}
caption{text-align:left;font-size:13px;padding:12px 0 4px}
th,td{text-align:left;padding:5px 10px;border-bottom:1px solid var(--line);vertical-align:top;font-weight:400}
thead th{border-bottom:2px solid var(--line);vertical-align:bottom;white-space:nowrap}
.n{text-align:right!important}td.n,th.n{white-space:nowrap}td,tbody th{max-width:26em}
tbody th[scope=row]{position:sticky;left:0;background:inherit}tbody th[scope=row]:not(.n){min-width:7em}
.dense th,.dense td{padding:4px 8px;font-size:13px}
thead button{all:unset;cursor:pointer;font-size:13px;color:var(--dim);white-space:normal}
thead button:focus-visible{outline:2px solid var(--link)}thead th:not([aria-sort]) button::after{content:""}
th[aria-sort=ascending] button::after{content:" ▲"}th[aria-sort=descending] button::after{content:" ▼"}
table table th{color:var(--dim)}tr.members>td{padding-top:0}tbody:has(tr.members)>tr:first-child>*{border:0}
summary{cursor:pointer;color:var(--link);font-size:13px}tr.sum>*{font-weight:650;border-top:2px solid var(--line)}
.track{display:flex;height:14px;min-width:120px;margin-top:4px;background:var(--soft);border-radius:3px;
overflow:hidden}.whole .track{height:22px;margin:8px 0 2px}
.waits td:nth-child(2){width:34%}.waits th[scope=row]{width:18%;min-width:130px}.waits td:nth-child(3){width:1%}
.usage td .track{min-width:160px}.k{white-space:nowrap}
.k-succeeded{color:var(--good)}.k-failed,.k-lost{color:var(--bad)}.k-preempted,.k-cancelled,.k-drained{color:var(--amber)}
#tip{position:fixed;z-index:2;max-width:360px;padding:7px 10px;background:var(--ink);color:var(--bg);font-size:12px;
line-height:1.4;border-radius:6px;white-space:pre-line;pointer-events:none;overflow-wrap:anywhere}
footer{margin-top:40px;border-top:1px solid var(--line);padding-top:10px;font-size:13px;color:var(--dim)}
@media (max-width:700px){body{padding:16px 12px}dl.tiles{grid-template-columns:1fr 1fr}}
@media print{:root{--bg:#fff;--card:#fff;--ink:#000;--dim:#444;--line:#bbb;color-scheme:light}
body{max-width:none;padding:0;font-size:11px}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
h2{break-after:avoid}tr,figure,dl.tiles{break-inside:avoid}.wide{overflow:visible}.wide svg{min-width:0}
.dense th,.dense td,table{font-size:9px}table,table.dense{min-width:0}tbody th[scope=row]{position:static;min-width:0}
td,tbody th{overflow-wrap:anywhere}}
"""

SCRIPT = """
"use strict";
const tip=document.createElement("div");tip.id="tip";tip.hidden=true;document.body.append(tip);
const said=new WeakMap();let lit=[];
function unlight(){lit.forEach(e=>e.classList.remove("lit"));lit=[];tip.hidden=true}
document.addEventListener("pointerover",e=>{
  const g=e.target.closest("svg g, tr[data-j]");unlight();if(!g)return;
  const id=g.dataset.j;
  if(id){lit=[...document.querySelectorAll('[data-j="'+id+'"]')];lit.forEach(x=>x.classList.add("lit"))}
  const title=g.querySelector(":scope > title");
  if(title){said.set(g,title.textContent);title.remove()}
  if(said.has(g)){tip.textContent=said.get(g);tip.hidden=false;move(e)}
});
function move(e){if(tip.hidden)return;
  tip.style.left=Math.max(4,Math.min(e.clientX+14,innerWidth-tip.offsetWidth-6))+"px";
  const below=e.clientY+16;
  tip.style.top=(below+tip.offsetHeight>innerHeight?e.clientY-tip.offsetHeight-10:below)+"px"}
document.addEventListener("pointermove",move);
document.addEventListener("click",e=>{
  const g=e.target.closest("svg g[data-j]");
  if(g)location.hash="job-"+g.dataset.j;
  const button=e.target.closest("thead button");if(button)sort(button.closest("th"))});
function show(){const row=document.getElementById(location.hash.slice(1));
  const box=row&&row.closest("details");if(box){box.open=true;row.scrollIntoView({block:"center"})}}
addEventListener("hashchange",show);show();
addEventListener("beforeprint",()=>document.querySelectorAll("details").forEach(d=>d.open=true));
function sort(head){
  const table=head.closest("table"),at=head.cellIndex,down=head.getAttribute("aria-sort")==="ascending";
  for(const h of head.parentElement.children)h.removeAttribute("aria-sort");
  head.setAttribute("aria-sort",down?"descending":"ascending");
  const value=b=>{const v=b.rows[0].cells[at].dataset.v??"";return v!==""&&!isNaN(v)?Number(v):v};
  const order=(a,b)=>typeof a===typeof b?(a<b?-1:a>b?1:0):typeof a==="number"?-1:1;
  const bodies=[...table.tBodies].filter(b=>!b.rows[0].classList.contains("sum"));
  const sums=[...table.tBodies].filter(b=>b.rows[0].classList.contains("sum"));
  bodies.sort((a,b)=>order(value(a),value(b))*(down?-1:1));table.append(...bodies,...sums)}
"""


def tenant_class(tenant: str, tenants: Sequence[str]) -> str:
    """Return the CSS class of a tenant: by its place among the tenants of the report."""
    return f"t{min(tenants.index(tenant), len(TENANT_COLOURS) - 1)}"


def stylesheet() -> str:
    """Return the CSS with one class per tenant colour (fill and background) and per cause of waiting."""
    tenants = [f".t{i}{{fill:{colour};background:{colour}}}" for i, colour in enumerate(TENANT_COLOURS)]
    causes = [f".c-{cause}{{background:{shown.colour}}}" for cause, shown in CAUSES.items()]
    return _CSS.strip() + "\n" + "".join(tenants) + "".join(causes)
