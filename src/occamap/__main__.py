"""`python -m occamap`: the command line."""

from occamap.cli.main import main

if __name__ == "__main__":
    main()
