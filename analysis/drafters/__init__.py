"""Why a drafter is bad: its checkpoint looked through, its wiring tried under named mistakes."""
