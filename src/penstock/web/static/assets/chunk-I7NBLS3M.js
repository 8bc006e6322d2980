var c={};export{c as a};
