"""`python -m pandora_router` is the command `pandora`."""

from pandora_router.cli.main import main

if __name__ == "__main__":
    main(prog_name="pandora")
