// Playing the course: a step stays as long as it takes to read; a question ends the play.

const READ = { least: 3500, word: 260 }; // milliseconds that a step stays

export class Player {
  /** lesson: the course on view, which says where it is and moves on; told(on): it plays, or does
   * no more. */
  constructor(lesson, told) {
    Object.assign(this, { lesson, told });
  }

  toggle() {
    if (this.playing) return this.pause();
    if (this.lesson.atEnd) this.lesson.go(0, 0);
    this.told(true);
    this._wait();
  }

  _wait() {
    const { lesson } = this,
      words = lesson.words.textContent.split(/\s+/).length;
    this.playing = setTimeout(
      () => {
        if (!lesson.onView || lesson.atEnd) return this.pause();
        lesson.move(1);
        if (lesson.asking || lesson.predicting) this.pause();
        else this._wait();
      },
      Math.max(READ.least, READ.word * words),
    );
  }

  pause() {
    clearTimeout(this.playing);
    this.playing = null;
    this.told(false);
  }
}
