// The first view: the trainings, evaluations and comparisons below the folder, and (h) the way to their pages.

class HomeView {
  constructor() {
    this.section = document.getElementById("home-view");
  }

  show(folders) {
    const listed = JSON.stringify(folders);
    if (listed === this.drawn) return;
    this.drawn = listed;
    const of = (kind) => folders.filter((folder) => folder.kind === kind).sort((a, b) => b.modified - a.modified);
    const date = ({ modified }) => (modified ? new Date(1000 * modified).toLocaleString("en-GB") : "");
    const state = ({ running }) => (running ? h("b", { className: "won" }, "running") : "");
    const runs = of("training").map((one) => [
      h("a", { href: `#${placeOf(one.id, "learning")}` }, one.name),
      state(one),
      one.objective ?? "",
      counted(one.steps),
      (one.tasks ?? []).join(", "),
      date(one),
    ]);
    const reports = [...of("evaluation"), ...of("comparison")].map((one) => [
      reportLink(one),
      one.kind,
      (one.tasks ?? []).join(", "),
      date(one),
    ]);
    this.section.replaceChildren(
      h("header", {}, h("h1", {}, "Runs")),
      runs.length
        ? scrolled("Trainings", smallTable("Trainings", ["run", "state", "objective", "steps", "tasks", "changed"], runs))
        : h("p", { className: "small" }, "There is no training with traces below this folder."),
      reports.length
        ? scrolled("Evaluations", smallTable("Evaluations and comparisons of two models", ["page", "kind", "sets", "changed"], reports))
        : "",
    );
  }
}

function reportLink({ id, name, report }) {
  return report === false ? h("bdi", {}, `${name} (no report yet)`) : h("a", { href: `report/${encodeURIComponent(id)}` }, name);
}

const scrolled = (name, table) => h("div", { className: "scroller home-table", tabIndex: 0, role: "region", ariaLabel: name }, table);
