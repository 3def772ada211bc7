"""The plan of a run: a page of its schedules and sizes, before it starts."""

PICTURE_FILE, PAGE_FILE = 'plan.png', 'plan.html'
