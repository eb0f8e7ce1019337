// Placeholder until the view is written.
class ReviewView {
  constructor() {
    this.section = h("section", {});
  }

  async show() {}
}
