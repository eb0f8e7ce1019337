// Placeholder until the view is written.
class CompareView {
  constructor() {
    this.section = h("section", {});
  }

  async show() {}
}
