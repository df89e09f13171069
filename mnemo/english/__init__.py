"""Pure rules about English sentences, below every other room, so that all read them alike."""
