"""Read what a policy answered: the answer in the `<answer>` tag, the form of a prompt, thoughts apart."""
