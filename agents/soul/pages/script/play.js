// The playground: take a row, play it, let an endpoint play it, or talk to a trained simulator; read verdict and critique, let
// it refine, and keep the session. The page asks for the session's state while somebody else is at work.

const PLAYERS = { me: "I answer", endpoint: "the endpoint answers", talk: "I talk to the policy" };
const ASK_MS = 700;

class PlayView {
  constructor(app) {
    this.source = app.source;
    this.section = h("section", { className: "play", ariaLabel: "Playground" });
    this.choice = { task: "", text: "", player: "me" };
  }

  async show([session]) {
    this.about ??= await this.source.get("play/about");
    this.session = session;
    if (session) return this.#draw(await this.source.get(addressOf("play", "state", session)));
    this.choice.task ||= this.about.tasks[0].task;
    await this.#choose();
  }

  // ---- the choice of a row

  async #choose() {
    const { task, text, player } = this.choice;
    const { tasks, endpoints, folder } = this.about;
    const of = tasks.find((one) => one.task === task);
    const players = Object.entries(PLAYERS).filter(([name]) => (name === "me" || endpoints.policy) && (name !== "talk" || of.talks));
    if (!players.some(([name]) => name === player)) this.choice.player = "me";
    const set = (name) => (value) => {
      this.choice[name] = value;
      this.#choose();
    };
    const search = h("input", { name: "text", type: "search", value: text, placeholder: "in the rows" });
    const { rows, total } = await this.source.get(addressOf("play", "rows", task), { text });
    const play = ({ row }) => button("Play", () => this.#start(row), { className: "button", ariaLabel: `Play row ${row}` });
    const columns = [{ title: "row" }, { title: "begins", text: true }, { title: "", text: true }];
    const cells = rows.map((one) => [String(one.row), one.words, play(one)]);
    const focused = this.section.contains(document.activeElement) ? document.activeElement.name : null;
    const asked = Object.entries(endpoints).map(([role, { model, address }]) => `${role}: ${model} at ${address}`);
    this.section.replaceChildren(
      h("header", {}, h("h1", {}, "Playground"), h("p", { className: "kind" }, asked.length ? `Asked: ${asked.join("; ")}. ` : "No endpoint is asked. ", `What you keep goes to ${folder}.`)),
      h(
        "div",
        { className: "choices" },
        choice("task", "Task", tasks.map((one) => [one.task, `${one.task} (${counted(one.rows)} rows)`]), task, set("task")),
        choice("player", "Who plays", players, this.choice.player, set("player")),
        labelled("Search", search, set("text")),
      ),
      of.notice ? h("p", { className: "note" }, of.notice) : "",
      rows.length ? dataTable(columns, cells, { name: "rows", caption: `${counted(total)} rows` }) : h("p", { className: "empty" }, "No row contains this text."),
      h("details", { className: "form" }, h("summary", {}, "A row of your own, as JSON"), this.#ownRow()),
    );
    if (focused) this.section.querySelector(`[name="${focused}"]`)?.focus();
  }

  #ownRow() {
    const text = h("textarea", { ariaLabel: "row as JSON", spellcheck: false });
    return [text, button("Play it", () => tried(() => this.#start(JSON.parse(text.value))), { className: "button" })];
  }

  #start(row) {
    return tried(async () => {
      const { session } = await this.source.post("play/start", { task: this.choice.task, row, player: this.choice.player });
      go(placeOf("play", session));
    });
  }

  // ---- a session

  #draw(state) {
    this.state = state;
    const attempts = ["draft", "refined"].filter((name) => name in state).map((name) => this.#attempt(name, state[name]));
    this.section.replaceChildren(
      h("header", {}, h("p", { className: "kind" }, h("a", { href: "#play" }, "all rows")), h("h1", {}, `${state.task}, row ${state.row}`), h("p", { className: "kind" }, PLAYERS[state.player])),
      attempts[0],
      state.feedback ? part("Feedback", h("blockquote", { dir: "auto" }, withheldMarked(state.feedback))) : "",
      state.feedback_failure ? failureOf(state.feedback_failure) : "",
      attempts[1] ?? "",
      state.target ? h("dl", { className: "answers" }, answerBox("Expected", state.target)) : "",
      this.#next(state),
    );
    if (state.turn === "model") setTimeout(() => this.#again(state.session), ASK_MS);
    this.section.querySelector("textarea")?.focus();
    scrollTo(0, document.body.scrollHeight);
  }

  async #again(session) {
    if (this.session !== session || this.section.hidden) return;
    await tried(async () => this.#draw(await this.source.get(addressOf("play", "state", session))));
  }

  #attempt(name, { agents, reward, metrics, critique, failure, contentless }) {
    const talks = Object.entries(agents).map(([agent, messages]) => [Object.keys(agents).length > 1 ? h("h3", {}, `agent ${agent}`) : null, turnsOf(messages)]);
    const verdict = failure ? failureOf(failure) : hasValue(reward) ? h("p", { className: "score" }, h("strong", {}, rewardText(reward)), contentless ? " empty response: the worst score" : " reward") : null;
    const values = Object.entries(metrics ?? {}).map(([metric, value]) => [metric, shortNumber(value)]);
    return h("section", { ariaLabel: name }, h("h2", {}, name === "draft" ? "Draft" : "Refined"), talks, verdict, values.length > 1 ? smallTable(null, ["metric", "value"], values) : null, critique ? h("blockquote", { dir: "auto" }, critique) : null);
  }

  #next({ turn, session, agent, feedback }) {
    const ask = (address, body) => tried(async () => this.#draw(await this.source.post(`play/${address}`, { session, ...body })));
    if (turn === "model") return h("p", { className: "small", role: "status" }, agent ? `${agent} writes ...` : "The judge reads ...");
    if (turn === "person") {
      const text = h("textarea", { ariaLabel: `your turn as ${agent}`, placeholder: `Your turn as ${agent}. Ctrl-Enter sends it.` });
      const send = () => ask("say", { text: text.value });
      text.addEventListener("keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && send());
      return h("form", { className: "form" }, text, h("p", {}, button("Send", send, { className: "button primary" })));
    }
    const keep = (kind) => tried(async () => notify(`Kept in ${(await this.source.post("play/keep", { session, kind })).file}.`));
    return h("p", { className: "choices" }, turn === "refine" && feedback ? button("Answer again with the feedback", () => ask("refine", {}), { className: "button primary" }) : null, button("Keep as a record", () => keep("record"), { className: "button" }), button("Keep as a row", () => keep("row"), { className: "button" }));
  }
}
