// Placeholder until the view is written.
class JudgeView {
  constructor() {
    this.section = h("section", {});
  }

  async show() {}
}
