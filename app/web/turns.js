// Answers come in any order, and only the one that was asked for last may be shown.

export class Turns {
  /** Ask for something: whatever was asked for before is not wanted any more. Gives isWanted(),
   *  to be called when the answer is there. */
  take() {
    const turn = {};
    this.now = turn;
    return () => this.now === turn;
  }

  /** Nothing is wanted any more: its answer has come, or something else is on view. */
  end() {
    this.now = null;
  }

  /** Whether something is asked for. */
  get isTaken() {
    return !!this.now;
  }
}
