// Loaded with the page's head: somebody may write before the views are made.

import { watchHands } from "./form.js";

watchHands();
