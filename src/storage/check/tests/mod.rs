mod misfits;
mod salvage;
mod verify;
