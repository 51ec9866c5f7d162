"""Scripts of those who maintain Draftscope: users run none of them.

ablate     what each choice of a training changes
overfit    whether a training can learn one sample, and its drafter then decodes it
ship       replace the drafters that ship by those of a training that are better
recording  make the traces that ship anew
picture    make the picture in the README anew

``python -m app.maintainers.NAME --help`` has the options of each.
"""

# The shell without windows is made for tests: a page takes it a seventh of the processor time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")
