// Curves of the last hour: writes, recalls, their time, what waits, what failed; one hairline through all.

import { get } from "../api.js";
import { clock, html, number, useContext, useEffect, useLoad, useRef, useSorted, useState, World } from "../parts.js";

const SERIES = {
  writes: { name: "Came in", unit: "writes/min", isRate: true, fill: true },
  recalls: { name: "Went out", unit: "recalls/min", isRate: true, fill: true },
  recall_p95_ms: { name: "Recall, p95", unit: "ms" },
  waiting: { name: "Waiting", unit: "messages", isMost: true, fill: true },
  failed: { name: "Failed", isSum: true, isBars: true },
};
const SPANS = { minutes: "10 min", hour: "1 h", day: "24 h" };
const OF_SPAN = { minutes: "in these 10 minutes", hour: "in this hour", day: "in this day" };

export function Curves() {
  const { tick, live } = useContext(World);
  const [at, setAt] = useState(null);
  const [of, setOf] = useState("hour");
  const [isListed, setListed] = useState(false);
  const state = useLoad((signal) => get("/curves", { span: of }, signal), [of], tick);
  const found = state.value;
  const theme = useTheme();
  if (!found) return null;
  const count = Math.max(...Object.values(found.series).map((values) => values.length));
  const times = Array.from({ length: count }, (_, index) => found.from + index * found.step_s);
  const pressed = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return event.key === "Escape" && setAt(null);
    event.preventDefault();
    return setAt(Math.min(count - 1, Math.max(0, (at ?? count - 1) + by)));
  };
  return html`<section class="card" aria-label="Curves">
    <div class="curves" tabindex="0" role="group" aria-label="Curves; left and right move through the minutes" onKeyDown=${pressed} onMouseLeave=${() => setAt(null)}>
      ${Object.entries(SERIES).map(([key, how]) => html`<${Curve} key=${`${key} ${found.step_s}`} ...${{ how, times, at, theme, live, of, step_s: found.step_s }} values=${found.series[key] ?? []} onAt=${setAt} />`)}
    </div>
    <div class="spans switch" role="group" aria-label="Time">${Object.entries(SPANS).map(([name, label]) => html`<button key=${name} aria-pressed=${name === of ? "true" : "false"} onClick=${() => (setAt(null), setOf(name))}>${label}</button>`)}</div>
    <details class="body" onToggle=${(event) => setListed(event.target.open)}><summary class="origin">as numbers</summary>${isListed && html`<${Numbers} times=${times} series=${found.series} />`}</details>
  </section>`;
}

function Numbers({ times, series }) {
  const values = Object.keys(SERIES).map((key) => [key, (index) => series[key]?.[index]]);
  const columns = { time: (index) => index, ...Object.fromEntries(values.map(([key, value]) => [key, (index) => value(index) ?? -1])) };
  const [sorted, head] = useSorted([...times.keys()], columns, "time");
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Curves as numbers"><table>
    <thead><tr>${head("time", "Time")}${Object.entries(SERIES).map(([key, { name }]) => head(key, name, "num"))}</tr></thead>
    <tbody>${sorted.map((index) => html`<tr key=${times[index]}><th scope="row">${clock(new Date(1_000 * times[index]))}</th>${values.map(([, value]) => html`<td class="num">${shown(value(index))}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

const shown = (value) => (value == null ? "–" : number(value < 10 ? Math.round(10 * value) / 10 : Math.round(value)));

/** A number that changes with the colours: a canvas does not follow them by itself. */
function useTheme() {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setTurn((number) => number + 1);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, []);
  return turn;
}

function Curve({ how, times, values, at, theme, live, of, step_s, onAt }) {
  const box = useRef(null);
  const plot = useRef(null);
  const scaled = how.isRate ? values.map((value) => (value == null ? null : (value * 60) / step_s)) : values;
  const known = scaled.filter((value) => value != null);
  const minute = Math.max(1, 60 / step_s); // a rate is of a whole minute
  const recent = values.slice(-1 - minute, -1).filter((value) => value != null);
  const last = !how.isRate ? known.at(-1) : recent.length ? recent.reduce((sum, value) => sum + value, 0) : scaled.at(-1);
  const now = at === null ? (how.isSum && known.length ? known.reduce((sum, value) => sum + value, 0) : last) : scaled[at];
  const peak = known.length ? Math.max(...known) : null;
  const isYoung = known.length < 3; // a line has more points than that
  useEffect(() => {
    plot.current = drawn(box.current, [times, scaled], how, live, onAt);
    const watch = new ResizeObserver(([{ contentRect: { width, height } }]) => plot.current.setSize({ width, height }));
    watch.observe(box.current);
    return () => (watch.disconnect(), plot.current.destroy());
  }, [theme, live, isYoung]);
  useEffect(() => plot.current.setData([times, scaled]), [times.at(-1), JSON.stringify(values)]);
  useEffect(() => {
    const left = at === null ? -10 : plot.current.valToPos(times[at], "x");
    if (plot.current.cursor.idx !== at) plot.current.setCursor({ left, top: 0 }, false);
  }, [at]);
  const time = (index) => (times[index] === undefined ? "" : clock(new Date(1_000 * times[index])));
  const unit = how.isSum ? (at === null ? OF_SPAN[of] : step_s < 60 ? "in this second" : "in this minute") : how.isMost && step_s >= 60 ? "at most" : how.unit;
  return html`<div class="curve" role="img" aria-label=${`${how.name}: ${shown(now)} ${unit}, peak ${shown(peak)}, ${time(0)} to ${time(times.length - 1)}`}>
    <p><span>${how.name}</span><span>${at === null ? (peak === null || how.isSum ? "" : `peak ${shown(peak)}`) : `at ${time(at)}`}</span></p>
    <p class="figure"><b>${shown(now)}</b> ${unit}</p>
    <div class="plot" ref=${box}></div>
    <p><span>${time(0)}</span><span>${time(times.length - 1)}</span></p>
  </div>`;
}

/** A curve without axes in the colours of the style sheet. */
function drawn(box, data, how, live, onAt) {
  const ink = (name) => {
    box.style.color = `var(--${name})`;
    return getComputedStyle(box).color;
  };
  const colour = ink(!live ? "soft" : how.isBars ? "failed" : "accent");
  const weak = colour.replace(/^rgb\((.*)\)$/, "rgba($1, .13)");
  const line = { stroke: colour, width: 1.5, points: { show: !how.isBars && data[1].filter((value) => value != null).length < 3, size: 4, fill: colour }, spanGaps: false };
  if (how.fill) line.fill = weak;
  if (how.isBars) Object.assign(line, { paths: globalThis.uPlot.paths.bars({ size: [0.6, 4, 2] }), fill: colour });
  return new globalThis.uPlot({
    width: Math.max(40, box.clientWidth), height: box.clientHeight, padding: [4, 0, 1, 0], legend: { show: false },
    axes: [{ show: false }, { show: false }],
    scales: { x: { time: true }, y: { range: (_, low, high) => [0, Math.max(1, high || 0) * 1.05] } },
    series: [{}, line],
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false }, sync: { key: "curves", setSeries: false, scales: ["x", null] } },
    hooks: { setCursor: [(self) => self.cursor.event && onAt(self.cursor.idx ?? null)] },
  }, data, box);
}
