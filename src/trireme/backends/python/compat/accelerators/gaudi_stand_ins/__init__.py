"""What model files import on a Gaudi machine, module by module; `finder` gives each the name it goes by there."""
