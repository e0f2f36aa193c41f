"""`python -m lakesql` is the command `lakesql`."""

from lakesql.entry import main

if __name__ == "__main__":
    main()
