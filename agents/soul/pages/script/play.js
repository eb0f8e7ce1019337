// Placeholder until the view is written.
class PlayView {
  constructor() {
    this.section = h("section", {});
  }

  async show() {}
}
