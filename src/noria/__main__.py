"""`python -m noria`: the command line where the script `noria` is not on the path."""

from noria.cli import main

if __name__ == "__main__":
    main()
