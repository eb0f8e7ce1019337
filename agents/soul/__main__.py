"""`python -m soul`: the console command `soul`."""

import sys

from soul.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
