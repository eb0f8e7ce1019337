"""The facts about runs that `soul show` prints and that the page lists."""
