"""What there is: frozen values of steps, messages, nodes, notes; pure rules over them, no await."""
