// Whether frames come in time while the shapes move; if not, less is drawn until they rest.

const SLOW = 40; // milliseconds from drawing to the next frame
const REST = 160; // milliseconds without a move

export class Pace {
  private late = 0; // frames in a row
  private moves = 0;
  private moving = false;
  private timer = 0;

  constructor(private readonly rested: () => void) {}

  move(): void {
    this.moves++;
    this.moving = true;
    clearTimeout(this.timer);
  }

  /** Late twice is slow, and stays slow: changing to and fro would flicker. */
  get hurried(): boolean {
    return this.moving && this.late > 1;
  }

  /** The next frame waits for the graphics, so its delay is what drawing costs; one late frame may be chance. */
  drawn(): void {
    if (!this.moving) return;
    const [start, moves] = [performance.now(), this.moves];
    requestAnimationFrame(() => {
      if (this.late < 2) this.late = performance.now() - start > SLOW ? this.late + 1 : 0;
      if (this.moves === moves) this.timer = window.setTimeout(() => this.rest(), REST);
    });
  }

  private rest(): void {
    const hurried = this.hurried;
    this.moving = false;
    if (hurried) this.rested(); // once more, with everything
  }
}
