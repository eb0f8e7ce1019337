// Placeholder until the view is written.
class AnnotateView {
  constructor() {
    this.section = h("section", {});
  }

  async show() {}
}
