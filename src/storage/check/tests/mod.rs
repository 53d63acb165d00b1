mod salvage;
mod verify;
