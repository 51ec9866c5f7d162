// Playing the rounds one after another.

const PLAY_EVERY = 900; // milliseconds a round stays

export class RoundsPlayer {
  /** guide(): where the rounds are; may(): whether there is something to play; changed(on). */
  constructor({ guide, may, changed }) {
    Object.assign(this, { guide, may, changed });
    this.timer = null;
  }

  toggle() {
    if (this.timer) return this.pause();
    if (!this.may()) return;
    this.guide().follow = false;
    if (this.guide().atEnd) this.guide().home();
    this.timer = setInterval(() => {
      if (this.guide().atEnd) this.pause();
      else this.guide().step(1);
    }, PLAY_EVERY);
    this.changed(true);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.changed(false);
  }
}
