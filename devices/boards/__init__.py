"""Read the profiles of boards, which were written from their data sheets."""
